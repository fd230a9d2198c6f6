// The scenarios of the JavaScript clients. A client hands in how its SDK connects; what is done and
// what has to hold stands here once. The Python and Rust clients say the same in their languages.
import { writeFileSync } from 'node:fs';

export const URI = 'interop://counter';
export const STEP_MS = Number(process.env.INTEROP_STEP_SECONDS ?? 15) * 1000;

/** Which server of a gateway is meant; without one there is nothing to say. */
const WHICH = process.env.INTEROP_SERVER ? { server: process.env.INTEROP_SERVER } : {};

/** What a server must be given: the SDKs hand on only a few names by themselves. */
export const environment = () =>
    Object.fromEntries(Object.entries(process.env).filter(([name]) => /^(INTEROP|AFRESH)_/.test(name)));

/** Whether a server is reached over HTTP: there is an address where its command would stand. */
export const is_url = command => /^https?:/.test(command);

class Failed extends Error {}

function check(holds, message) {
    if (!holds) throw new Failed(message);
}

/** The events of one subscription, in the order of their arrival. */
export class Events {
    #waiting = [];
    #arrived = [];
    ended = undefined;

    push(event) {
        this.#arrived.push(event);
        for (const wake of this.#waiting.splice(0)) wake();
    }

    end(how) {
        this.ended ??= how;
        for (const wake of this.#waiting.splice(0)) wake();
    }

    forget() {
        this.#arrived = [];
    }

    /** Whether `event` arrives within the time. */
    async has(event, ms) {
        const deadline = Date.now() + ms;
        while (!this.#arrived.includes(event)) {
            const left = deadline - Date.now();
            if (left <= 0 || this.ended !== undefined) return false;
            let timer;
            await new Promise(wake => {
                this.#waiting.push(wake);
                timer = setTimeout(wake, left);
            });
            clearTimeout(timer);
        }
        return true;
    }
}

const text = result => (result.content ?? []).map(block => block.text ?? '').join('');

/** The object that a tool of afresh answers, however it is wrapped. */
function value(result) {
    if (result.structuredContent) return result.structuredContent;
    try {
        return JSON.parse(text(result));
    } catch {
        return {};
    }
}

/** How a call ended. `lost` and `hung` are what no supervisor may let happen. */
async function outcome(call) {
    try {
        const result = await call;
        return result.isError ? 'tool error' : 'result';
    } catch (error) {
        if ([-32000, 'CONNECTION_CLOSED', 'NOT_CONNECTED', 'SEND_FAILED'].includes(error.code)) return 'lost';
        if ([-32001, 'REQUEST_TIMEOUT'].includes(error.code)) return 'hung';
        return `error ${error.code ?? error.message}`;
    }
}

async function succeed(client, name, args = {}) {
    const result = await client.call(name, args);
    check(!result.isError, `\`${name}\` answered an error: ${text(result)}`);
    return result;
}

async function echo(client) {
    const message = `hello ${Math.random()}`;
    const answer = text(await succeed(client, 'echo', { message }));
    check(answer.includes(message), `\`echo\` answered ${answer}`);
}

async function pid(client) {
    const told = client.tools.includes('pid')
        ? text(await succeed(client, 'pid'))
        : JSON.parse(text(await succeed(client, 'get-env'))).INTEROP_SERVER_PID;
    // It may be killed next, and small numbers mean whole groups.
    check(Number(told) > 1, `the server tells ${told} as its process id`);
    return Number(told);
}

const slow = (client, ms) =>
    client.tools.includes('slow')
        ? client.call('slow', { ms })
        : client.call('trigger-long-running-operation', { duration: ms / 1000, steps: 1 });

async function settle(calls, report) {
    report.in_flight = await Promise.all(calls);
    const bad = report.in_flight.filter(how => how === 'lost' || how === 'hung');
    check(bad.length === 0, `of the calls in flight, ${bad.length} were ${bad.join(', ')}`);
}

/** A new instance serves: the next call succeeds at once, and another process answers it. */
async function served_anew(client, before, report) {
    await echo(client);
    report.pids = [before, await pid(client)];
    check(report.pids[1] !== before, `process ${before} still answers`);
}

async function exit(client, report, code) {
    const before = await pid(client);
    const calls = [slow(client, 3000), slow(client, 4000), client.call('exit', { code })].map(outcome);
    await settle(calls, report);
    await served_anew(client, before, report);
}

/** Kills the server in the middle of a call. When that call is answered, the death was noticed. */
async function kill(client, report) {
    const before = await pid(client);
    const call = outcome(slow(client, 3000));
    // The server reads in order: when this is answered, it has the call too.
    await echo(client);
    process.kill(before, 'SIGKILL');
    await settle([call], report);
    await served_anew(client, before, report);
}

/** The other server of a gateway, whose name stands in front of its tools. */
function other(client) {
    const prefix = 'other__';
    const tools = client.tools.filter(name => name.startsWith(prefix)).map(name => name.slice(prefix.length));
    return { tools, call: (name, args) => client.call(prefix + name, args) };
}

/** Both servers of a gateway are listed and answer. */
async function both(client, report) {
    report.tools = client.tools;
    for (const server of [client, other(client)]) {
        check(server.tools.includes('echo'), '`echo` is not in the list');
        await echo(server);
    }
    check((await pid(client)) !== (await pid(other(client))), 'one process answers for both');
}

/** Kills a server of a gateway in the middle of calls to both: nothing happens to the other. */
async function one_dies(client, report) {
    const spared = await pid(other(client));
    const before = await pid(client);
    const calls = [slow(client, 1500), slow(other(client), 1500)].map(outcome);
    await echo(client);
    process.kill(before, 'SIGKILL');
    await echo(other(client));
    await settle(calls, report);
    check(report.in_flight[1] === 'result', `the call of the other server ended with ${report.in_flight[1]}`);
    await served_anew(client, before, report);
    check((await pid(other(client))) === spared, 'the other server was restarted too');
}

/** Restarts the server by the tool, which a client sees among the server's own. */
async function restart(client, report) {
    check(client.tools.includes('restart_server'), '`restart_server` is not in the list');
    const before = await pid(client);
    const since = Date.now() / 1000;
    await succeed(client, 'restart_server', { reason: 'interop', ...WHICH });
    // The answer may come before the old instance goes. No call may fail meanwhile.
    const deadline = Date.now() + STEP_MS;
    let now = before;
    while (now === before && Date.now() < deadline) {
        await new Promise(resolve => setTimeout(resolve, 50));
        now = await pid(client);
    }
    report.pids = [before, now];
    check(now !== before, `process ${before} still answers`);
    await echo(client);
    if (!client.tools.includes('verify_server_restarted')) return;
    const verdict = value(await client.call('verify_server_restarted', { since_timestamp: since, ...WHICH }));
    report.verified = verdict.restarted ?? null;
    check(report.verified === true, `\`verify_server_restarted\` denies it: ${verdict.error}`);
}

/** Makes the server report a change until it arrives; the server of npm can only be asked once. */
async function touched(client, events) {
    events.forget();
    if (!client.tools.includes('touch')) {
        await succeed(client, 'toggle-subscriber-updates');
        return events.has('updated', STEP_MS);
    }
    const deadline = Date.now() + STEP_MS;
    while (Date.now() < deadline && events.ended === undefined) {
        await succeed(client, 'touch');
        if (await events.has('updated', 500)) return true;
    }
    return false;
}

async function subscription(client, report, restart_by) {
    const events = await client.subscribe({ resource: true });
    check(await touched(client, events), 'no update arrives even before the restart');
    report.before = true;
    await restart_by(client, report);
    check(await touched(client, events), `no update arrives after the restart (ended: ${events.ended})`);
    report.after = true;
}

async function list_change(client, report) {
    check(!client.tools.includes('new_tool'), '`new_tool` is there before the change');
    const events = await client.subscribe({ tools: true });
    events.forget();
    writeFileSync(process.env.INTEROP_VERSION_FILE, '2\n');
    await restart(client, report);
    check(await events.has('tools', STEP_MS), `no list_changed arrives (ended: ${events.ended})`);
    report.tools = await client.list();
    check(report.tools.includes('new_tool'), '`new_tool` is not in the list');
    await succeed(client, 'new_tool');
}

const SCENARIOS = {
    connect: async () => {},
    list: async (client, report) => {
        report.tools = client.tools;
        check(client.tools.includes('echo'), '`echo` is not in the list');
    },
    call: echo,
    'exit-42': (client, report) => exit(client, report, 42),
    'exit-1': (client, report) => exit(client, report, 1),
    kill,
    'restart-tool': restart,
    subscription: (client, report) => subscription(client, report, kill),
    'subscription-tool': (client, report) => subscription(client, report, restart),
    'list-change': list_change,
    both,
    'one-dies': one_dies
};

/**
 * Runs the scenario that the command line names: `[--mode MODE] SCENARIO -- COMMAND…|URL`.
 *
 * `connect(mode, command, args)` gives `{ protocol, server, list(), call(name, args), subscribe(what), close() }`.
 */
export async function main(connect) {
    const words = process.argv.slice(2);
    const mode = words[0] === '--mode' ? words.splice(0, 2)[1] : undefined;
    const [name, dashes, command, ...args] = words;
    const scenario = SCENARIOS[name];
    if (!scenario || dashes !== '--' || !command) {
        console.error(`usage: [--mode MODE] ${Object.keys(SCENARIOS).join('|')} -- COMMAND…|URL`);
        process.exit(2);
    }
    const report = { scenario: name, ok: false };
    let client;
    try {
        client = await connect(mode, command, args);
        report.protocol = client.protocol;
        report.server = client.server;
        if (name !== 'connect') client.tools = await client.list();
        await scenario(client, report);
        report.ok = true;
    } catch (error) {
        report.error = error instanceof Failed ? error.message : `${error.name}: ${error.message}`;
    }
    await client?.close().catch(() => {});
    console.log(JSON.stringify(report));
    process.exit(report.ok ? 0 : 1);
}
