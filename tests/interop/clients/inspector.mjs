// The command line of the MCP inspector. Each request is a process of its own, so on stdio it can only
// connect, list and call.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { packages } from '../packages.mjs';
import { STEP_MS, environment, is_url, main } from './scenarios.mjs';

const INSPECTOR = `${packages}/@modelcontextprotocol/inspector/clients/launcher/build/index.js`;

const run = promisify(execFile);

main(async (mode, command, args) => {
    const request = async (...words) => {
        const variables = Object.entries(environment()).flatMap(([name, value]) => ['-e', `${name}=${value}`]);
        const era = ['--protocol-era', mode ?? 'legacy', '--format', 'json'];
        // All after the first `--` is the server's own.
        const server = is_url(command) ? ['--server-url', command] : [...variables, '--', command, ...args];
        const all = [INSPECTOR, '--cli', ...era, ...words, ...server];
        const ended = await run(process.execPath, all, { timeout: STEP_MS, maxBuffer: 1 << 24 }).catch(error => error);
        if (ended instanceof Error) throw new Error(`inspector ended with ${ended.code ?? ended.signal}: ${ended.stderr}`);
        return JSON.parse(ended.stdout).result;
    };
    const { tools } = await request('--method', 'tools/list');
    return {
        list: async () => tools.map(tool => tool.name),
        call: async (name, input) =>
            request('--method', 'tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(input)),
        close: async () => {}
    };
});
