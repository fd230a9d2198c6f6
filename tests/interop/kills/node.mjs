// A server on the TypeScript SDK. Its tool `run` writes its number down in the file that `INTEROP_DONE` names
// before it answers.
import { openSync, writeSync } from 'node:fs';
import { load } from '../packages.mjs';

const { McpServer } = load('@modelcontextprotocol/server');
const { serveStdio } = load('@modelcontextprotocol/server/stdio');
const { z } = load('zod');

const done = openSync(process.env.INTEROP_DONE, 'a', 0o600);

serveStdio(() => {
    const server = new McpServer({ name: 'node', version: '1' }, { capabilities: { tools: {} } });
    const inputSchema = z.object({ number: z.number().int() });
    server.registerTool('run', { description: 'run', inputSchema }, ({ number }) => {
        writeSync(done, `${String(number).padStart(9, '0')}\n`);
        return { content: [{ type: 'text', text: `${number} ${process.pid}` }] };
    });
    return server;
});
