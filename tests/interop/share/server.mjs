// A server on the TypeScript SDK, named by its argument. Its tool `run` writes its number to the file that
// `INTEROP_DONE` names before it answers; with `asks` it asks the client for that number first.
import { openSync, writeSync } from 'node:fs';
import { load } from '../packages.mjs';

const { McpServer } = load('@modelcontextprotocol/server');
const { serveStdio } = load('@modelcontextprotocol/server/stdio');
const { z } = load('zod');

const name = process.argv[2];
const done = openSync(process.env.INTEROP_DONE, 'a', 0o600);
const requestedSchema = { type: 'object', properties: { number: { type: 'integer' } }, required: ['number'] };

serveStdio(() => {
    const server = new McpServer({ name, version: '1' }, { capabilities: { tools: {} } });
    const inputSchema = z.object({ number: z.number().int(), asks: z.boolean() });
    server.registerTool('run', { description: 'run', inputSchema }, async ({ number, asks }, { mcpReq }) => {
        let answer = number;
        if (asks) {
            const { content } = await mcpReq.elicitInput({ message: `${name} ${number}`, requestedSchema });
            answer = content?.number;
        }
        writeSync(done, `${String(number).padStart(9, '0')}\n`);
        return { content: [{ type: 'text', text: `${number} ${process.pid} ${answer}` }] };
    });
    return server;
});
