// The common server on the TypeScript SDK v2: both eras.
import { readFileSync } from 'node:fs';
import { load } from '../packages.mjs';

const { McpServer } = load('@modelcontextprotocol/server');
const { serveStdio } = load('@modelcontextprotocol/server/stdio');
const { z } = load('zod');

const URI = 'interop://counter';
const version = readFileSync(process.env.INTEROP_VERSION_FILE, 'utf8').trim();
const text = value => ({ content: [{ type: 'text', text: String(value) }] });

function create({ era }) {
    const server = new McpServer(
        { name: 'interop-ts-v2', version },
        { capabilities: { tools: { listChanged: true }, resources: { subscribe: true } } }
    );
    const tool = (name, inputs, call) =>
        server.registerTool(name, { description: name, inputSchema: z.object(inputs) }, call);
    let counter = 0;
    // Only a resource that was subscribed to is reported: after a restart an update proves that the
    // subscription was made again. In the modern era the SDK itself keeps to what was listened to.
    const subscribed = new Set(era === 'legacy' ? [] : [URI]);

    tool('echo', { message: z.string() }, ({ message }) => text(`echo: ${message}`));
    tool('pid', {}, () => text(process.pid));
    tool('exit', { code: z.number().int() }, ({ code }) => process.exit(code));
    tool('slow', { ms: z.number() }, async ({ ms }) => {
        await new Promise(resolve => setTimeout(resolve, ms));
        return text(`slow: ${ms}`);
    });
    tool('version', {}, () => text(version));
    tool('touch', {}, async () => {
        counter += 1;
        if (subscribed.has(URI)) await server.server.sendResourceUpdated({ uri: URI });
        return text(counter);
    });
    if (version === '2') tool('new_tool', {}, () => text('new'));

    server.registerResource('counter', URI, {}, uri => ({ contents: [{ uri: uri.href, text: String(counter) }] }));
    if (era === 'legacy') {
        server.server.setRequestHandler('resources/subscribe', ({ params }) => {
            subscribed.add(params.uri);
            return {};
        });
        server.server.setRequestHandler('resources/unsubscribe', ({ params }) => {
            subscribed.delete(params.uri);
            return {};
        });
    }
    return server;
}

serveStdio(create);
