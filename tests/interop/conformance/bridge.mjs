// An HTTP front for a stdio server: the conformance suite speaks only HTTP.
//
// `bridge.mjs COMMAND…` prints its address and serves until SIGTERM. Lines go to the command and come back
// as they are; none is written anew. A legacy session (`initialize`, `Mcp-Session-Id`) has a process of its
// own; all modern requests, which are stateless, share one.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

const META = 'io.modelcontextprotocol/';
const MODERN = '2026-07-28';
const IDLE_MS = 10_000; // a session without any open stream for so long was forgotten by its client
const STOP_MS = 4_000; // then what is left is killed

const children = new Set();

/** One process of the command, and who waits for what from it. */
class Child {
    #process;
    #rest = '';
    #requests = new Map(); // by the request's id as JSON
    #unsent = []; // for a stream that nobody opened yet
    #idle;
    listener; // the stream of a GET

    constructor(command, args) {
        this.#process = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
        this.#process.stdin.on('error', () => {});
        this.#process.stdout.setEncoding('utf8').on('data', chunk => this.#read(chunk));
        this.ended = new Promise(resolve => this.#process.once('exit', resolve).once('error', resolve));
        this.ended.then(() => {
            children.delete(this);
            for (const { response } of this.#requests.values()) response.destroy();
        });
        children.add(this);
    }

    write(line) {
        this.#process.stdin.write(`${line}\n`);
    }

    stop() {
        clearTimeout(this.#idle);
        this.#process.stdin.end();
        const timer = setTimeout(() => this.#process.kill('SIGKILL'), STOP_MS);
        return this.ended.then(() => clearTimeout(timer));
    }

    /** Sends a request; what comes back goes into `reply`. */
    request(message, line, reply) {
        const key = JSON.stringify(message.id);
        this.#requests.set(key, { ...reply, key, token: message.params?._meta?.progressToken, listens: message.method === 'subscriptions/listen' });
        reply.response.once('close', () => {
            if (this.#requests.get(key)?.response !== reply.response) return;
            this.#requests.delete(key);
            // Only in the modern era does a client cancel by going away.
            const params = { requestId: message.id };
            if (reply.modern) this.write(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params }));
        });
        this.write(line);
    }

    waits_for(id) {
        return this.#requests.has(JSON.stringify(id));
    }

    listen(response) {
        this.listener?.end();
        this.listener = response;
        start_stream(response);
        response.flushHeaders();
        for (const line of this.#unsent.splice(0)) send_event(response, line);
    }

    /** Calls `forget` when no stream was open for a while. */
    watch(forget) {
        clearTimeout(this.#idle);
        const open = this.#requests.size > 0 || (this.listener && !this.listener.closed);
        this.#idle = setTimeout(() => (open ? this.watch(forget) : forget()), IDLE_MS);
    }

    #read(chunk) {
        const lines = (this.#rest + chunk).split('\n');
        this.#rest = lines.pop();
        for (const line of lines) if (line.trim()) this.#deliver(line, JSON.parse(line));
    }

    #deliver(line, message) {
        if (message.method === undefined) return this.#answer(line, message);
        const request = this.#request_of(message.params);
        if (request) {
            start_stream(request.response, request.headers);
            send_event(request.response, line);
        } else if (this.listener && !this.listener.closed) {
            send_event(this.listener, line);
        } else {
            this.#unsent.push(line);
        }
    }

    #answer(line, message) {
        const key = JSON.stringify(message.id ?? null);
        const request = this.#requests.get(key);
        if (!request) return;
        this.#requests.delete(key);
        if (request.response.headersSent) {
            send_event(request.response, line);
            request.response.end();
        } else {
            const status = request.modern ? status_of(message.error?.code) : 200;
            request.response.writeHead(status, { ...request.headers, 'content-type': 'application/json' }).end(line);
        }
    }

    /** On stdio only subscriptions and progress say what they belong to. The rest goes to the newest call. */
    #request_of(params) {
        const all = [...this.#requests.values()];
        const subscription = params?._meta?.[`${META}subscriptionId`];
        if (subscription !== undefined) return this.#requests.get(JSON.stringify(subscription));
        const token = params?.progressToken;
        if (token !== undefined) return all.find(request => request.token === token);
        return all.findLast(request => !request.listens);
    }
}

function start_stream(response, headers = {}) {
    if (response.headersSent) return;
    response.writeHead(200, { ...headers, 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
}

const send_event = (response, line) => response.write(`event: message\ndata: ${line}\n\n`);

/** What the HTTP binding of the modern era wants to be seen in the status too. */
function status_of(code) {
    if (code === -32601) return 404;
    return [-32700, -32600, -32602, -32020, -32021, -32022].includes(code) ? 400 : 200;
}

function refuse(response, status, code, message, id = null) {
    const body = JSON.stringify({ jsonrpc: '2.0', id, error: { code, message } });
    response.writeHead(status, { 'content-type': 'application/json' }).end(body);
}

/** Which header says something else than the body, if any. */
function wrong_header(headers, { method, params }) {
    const expected = { 'mcp-protocol-version': params?._meta?.[`${META}protocolVersion`], 'mcp-method': method };
    if (['tools/call', 'prompts/get'].includes(method)) expected['mcp-name'] = params?.name;
    if (method === 'resources/read') expected['mcp-name'] = params?.uri;
    return Object.keys(expected).find(name => expected[name] !== undefined && headers[name]?.trim() !== expected[name]);
}

const is_local = name => /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/.test(name);

function serve(command, args) {
    const sessions = new Map();
    const modern = []; // one, and more only while two requests have the same id
    const from_session = (request, response) => {
        const child = sessions.get(request.headers['mcp-session-id']);
        if (!child) refuse(response, request.headers['mcp-session-id'] ? 404 : 400, -32600, 'no such session');
        return child;
    };
    const forget = id => {
        sessions.get(id)?.stop();
        sessions.delete(id);
    };

    function modern_child(id) {
        let child = modern.find(child => children.has(child) && !child.waits_for(id));
        if (child) return child;
        child = new Child(command, args);
        modern.push(child);
        // The first message decides the era of a process, and the suite begins with broken ones. A mere
        // `server/discover` decides nothing.
        const _meta = { [`${META}protocolVersion`]: MODERN, [`${META}clientCapabilities`]: {} };
        child.write(JSON.stringify({ jsonrpc: '2.0', id: 'bridge', method: 'tools/list', params: { _meta } }));
        return child;
    }

    function post(request, response, line) {
        let message;
        try {
            message = JSON.parse(line);
        } catch {
            return refuse(response, 400, -32700, 'the body is not JSON');
        }
        const is_request = message.method !== undefined && message.id !== undefined && message.id !== null;
        const version = request.headers['mcp-protocol-version'];
        const stateless = message.params?._meta?.[`${META}protocolVersion`] !== undefined || version >= MODERN;
        if (stateless && is_request && !request.headers['mcp-session-id']) {
            const wrong = wrong_header(request.headers, message);
            if (wrong) return refuse(response, 400, -32020, `the header ${wrong} is missing or contradicts the body`, message.id);
            return modern_child(message.id).request(message, line, { response, modern: true });
        }
        if (message.method === 'initialize' && is_request) {
            const id = randomUUID();
            sessions.set(id, new Child(command, args));
            sessions.get(id).watch(() => forget(id));
            return sessions.get(id).request(message, line, { response, headers: { 'mcp-session-id': id } });
        }
        const child = from_session(request, response);
        if (!child) return;
        child.watch(() => forget(request.headers['mcp-session-id']));
        if (is_request) return child.request(message, line, { response });
        child.write(line);
        response.writeHead(202).end();
    }

    return async (request, response) => {
        const { host = '', origin } = request.headers;
        if (!is_local(host) || (origin && !is_local(origin.replace(/^https?:\/\//, '')))) {
            return refuse(response, 403, -32600, 'only for this machine');
        }
        let body = '';
        for await (const chunk of request.setEncoding('utf8')) body += chunk;
        if (request.method === 'POST') return post(request, response, body.replaceAll(/[\r\n]+/g, ' '));
        if (!['GET', 'DELETE'].includes(request.method)) return response.writeHead(405).end();
        const child = from_session(request, response);
        if (!child) return;
        if (request.method === 'GET') return child.listen(response);
        forget(request.headers['mcp-session-id']);
        response.writeHead(200).end();
    };
}

const [command, ...args] = process.argv.slice(2);
const server = createServer(serve(command, args));
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
process.on('SIGTERM', async () => {
    await Promise.all([...children].map(child => child.stop()));
    process.exit(0);
});
