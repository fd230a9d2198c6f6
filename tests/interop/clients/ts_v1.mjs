// A client on the TypeScript SDK v1: the legacy era only.
import { load } from '../packages.mjs';
import { Events, STEP_MS, URI, environment, is_url, main } from './scenarios.mjs';

const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport, getDefaultEnvironment } = load('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = load('@modelcontextprotocol/sdk/client/streamableHttp.js');
const schemas = load('@modelcontextprotocol/sdk/types.js');

const options = { timeout: STEP_MS };

main(async (_mode, command, args) => {
    const client = new Client({ name: 'interop-ts-v1', version: '1' });
    const env = { ...getDefaultEnvironment(), ...environment() };
    const transport = is_url(command)
        ? new StreamableHTTPClientTransport(new URL(command))
        : new StdioClientTransport({ command, args, env });
    // The transport is told the version; the client doesn't say it.
    let protocol;
    const told = transport.setProtocolVersion?.bind(transport);
    transport.setProtocolVersion = version => {
        protocol = version;
        told?.(version);
    };
    await client.connect(transport, options);
    return {
        protocol,
        server: client.getServerVersion()?.name,
        list: async () => (await client.listTools(undefined, options)).tools.map(tool => tool.name),
        call: (name, input) => client.callTool({ name, arguments: input }, undefined, options),
        subscribe: async ({ resource }) => {
            const events = new Events();
            client.onclose = () => events.end('closed');
            client.setNotificationHandler(schemas.ResourceUpdatedNotificationSchema, ({ params }) => {
                if (params.uri === URI) events.push('updated');
            });
            client.setNotificationHandler(schemas.ToolListChangedNotificationSchema, () => events.push('tools'));
            if (resource) await client.subscribeResource({ uri: URI }, options);
            return events;
        },
        close: () => client.close()
    };
});
