// The command line of the MCP inspector. Each request is a process of its own, so it can only connect,
// list and call.
import { spawnSync } from 'node:child_process';
import { packages } from '../packages.mjs';
import { STEP_MS, environment, main } from './scenarios.mjs';

const INSPECTOR = `${packages}/@modelcontextprotocol/inspector/clients/launcher/build/index.js`;

main(async (mode, command, args) => {
    const request = (...words) => {
        const variables = Object.entries(environment()).flatMap(([name, value]) => ['-e', `${name}=${value}`]);
        const era = ['--protocol-era', mode ?? 'legacy', '--format', 'json'];
        // All after the first `--` is the server's own.
        const all = [INSPECTOR, '--cli', ...variables, ...era, ...words, '--', command, ...args];
        const ended = spawnSync(process.execPath, all, { encoding: 'utf8', timeout: STEP_MS });
        if (ended.status !== 0) throw new Error(`inspector ended with ${ended.status ?? ended.signal}: ${ended.stderr}`);
        return JSON.parse(ended.stdout).result;
    };
    const { tools } = request('--method', 'tools/list');
    return {
        list: async () => tools.map(tool => tool.name),
        call: async (name, input) =>
            request('--method', 'tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(input)),
        close: async () => {}
    };
});
