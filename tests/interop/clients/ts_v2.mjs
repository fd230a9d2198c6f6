// A client on the TypeScript SDK v2. Modes: `legacy`, `auto` (which starts the command twice), `pinned`.
import { load } from '../packages.mjs';
import { Events, STEP_MS, URI, environment, is_url, main } from './scenarios.mjs';

const { Client, StreamableHTTPClientTransport } = load('@modelcontextprotocol/client');
const { StdioClientTransport, getDefaultEnvironment } = load('@modelcontextprotocol/client/stdio');

const MODES = { legacy: 'legacy', auto: 'auto', pinned: { pin: '2026-07-28' } };
const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';
const options = { timeout: STEP_MS };

main(async (mode, command, args) => {
    const client = new Client(
        { name: `interop-ts-v2-${mode}`, version: '1' },
        { versionNegotiation: { mode: MODES[mode] } }
    );
    const env = { ...getDefaultEnvironment(), ...environment() };
    const transport = is_url(command)
        ? new StreamableHTTPClientTransport(new URL(command))
        : new StdioClientTransport({ command, args, env });
    // The id of a subscription is that of its request, which the client keeps to itself.
    let listening;
    const send = transport.send.bind(transport);
    transport.send = (message, ...more) => {
        if (message.method === 'subscriptions/listen') listening = message.id;
        return send(message, ...more);
    };
    await client.connect(transport, options);
    const modern = client.getProtocolEra() === 'modern';
    return {
        protocol: client.getNegotiatedProtocolVersion(),
        server: client.getServerVersion()?.name,
        list: async () => (await client.listTools(undefined, options)).tools.map(tool => tool.name),
        call: (name, input) => client.callTool({ name, arguments: input }, options),
        subscribe: async ({ resource, tools }) => {
            const events = new Events();
            const ours = params => !modern || params?._meta?.[SUBSCRIPTION] === listening;
            client.onclose = () => events.end('closed');
            client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
                if (params.uri === URI && ours(params)) events.push('updated');
            });
            client.setNotificationHandler('notifications/tools/list_changed', ({ params }) => {
                if (ours(params)) events.push('tools');
            });
            if (modern) {
                const filter = { toolsListChanged: tools, resourceSubscriptions: resource ? [URI] : undefined };
                const subscription = await client.listen(filter, options);
                subscription.closed.then(how => events.end(how));
            } else if (resource) {
                await client.subscribeResource({ uri: URI }, options);
            }
            return events;
        },
        close: () => client.close()
    };
});
