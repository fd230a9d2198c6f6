// A server on the TypeScript SDK, named by its argument: the tool `where_NAME` says `NAME PID`.
import { load } from '../packages.mjs';

const { McpServer } = load('@modelcontextprotocol/server');
const { serveStdio } = load('@modelcontextprotocol/server/stdio');
const { z } = load('zod');

const name = process.argv[2];

serveStdio(() => {
    const server = new McpServer({ name, version: '1' }, { capabilities: { tools: {} } });
    const tool = { description: 'Says which server and which process answers.', inputSchema: z.object({}) };
    server.registerTool(`where_${name}`, tool, () => ({
        content: [{ type: 'text', text: `${name} ${process.pid}` }]
    }));
    return server;
});
