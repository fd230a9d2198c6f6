// The server that the official conformance suite asks for, on stdio: the TypeScript SDK v2, both eras.
// What each `test_*` tool, prompt and resource has to do is said in the suite's own descriptions.
import { load } from '../packages.mjs';

const {
    McpServer,
    ResourceTemplate,
    acceptedContent,
    completable,
    createRequestStateCodec,
    fromJsonSchema,
    inputRequired
} = load('@modelcontextprotocol/server');
const { serveStdio } = load('@modelcontextprotocol/server/stdio');
const { z } = load('zod');

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
// A header of 44 bytes that announces no sample.
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';
const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities';

const text = value => ({ content: [{ type: 'text', text: value }] });
const user = content => ({ role: 'user', content });
const pause = () => new Promise(resolve => setTimeout(resolve, 50));
const object = (properties, required = Object.keys(properties)) => ({ type: 'object', properties, required });
const embedded = (uri, mimeType, value) => ({ type: 'resource', resource: { uri, mimeType, text: value } });

// The state of a multi-round request is signed. The key is always the same, so that a request can go on
// after a restart.
const state = createRequestStateCodec({ key: 'a key for tests, known to everyone, 32 bytes or more' });

function content_tools(tool) {
    const image = { type: 'image', data: PNG, mimeType: 'image/png' };
    const audio = { type: 'audio', data: WAV, mimeType: 'audio/wav' };
    const resource = embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.');
    const mixed = embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}');
    tool('test_simple_text', {}, () => text('This is a simple text response for testing.'));
    tool('test_image_content', {}, () => ({ content: [image] }));
    tool('test_audio_content', {}, () => ({ content: [audio] }));
    tool('test_embedded_resource', {}, () => ({ content: [resource] }));
    tool('test_multiple_content_types', {}, () => ({
        content: [{ type: 'text', text: 'Multiple content types test:' }, image, mixed]
    }));
    tool('test_error_handling', {}, () => {
        throw new Error('This tool intentionally returns an error for testing');
    });
    tool('test_tool_with_logging', {}, async (_, { mcpReq }) => {
        await mcpReq.log('info', 'Tool execution started');
        await pause();
        await mcpReq.log('info', 'Tool processing data');
        await pause();
        await mcpReq.log('info', 'Tool execution completed');
        return text('logged');
    });
    tool('test_logging_tool', {}, async (_, { mcpReq }) => {
        await mcpReq.log('info', 'only for who asked for it');
        return text('logged');
    });
    tool('test_tool_with_progress', {}, async (_, { mcpReq }) => {
        const progressToken = mcpReq._meta?.progressToken;
        for (const progress of [0, 50, 100]) {
            if (progressToken === undefined) break;
            await mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
            if (progress < 100) await pause();
        }
        return text('done');
    });
    // Its stream would be cut by a server that has one; on stdio there is none to cut.
    tool('test_reconnection', {}, async () => {
        await pause();
        return text('Reconnection test completed');
    });
}

/** The tools that ask the client something in the middle of a call: only in the legacy era. */
function asking_tools(tool) {
    const answered = ({ action, content }) =>
        text(`Elicitation completed: action=${action}, content=${JSON.stringify(content ?? {})}`);
    const titled = (words, title) => words.map((word, index) => ({ const: `value${index + 1}`, title: `${word} ${title}` }));
    const words = ['First', 'Second', 'Third'];
    const options = ['option1', 'option2', 'option3'];

    tool('test_sampling', { prompt: z.string() }, async ({ prompt }, { mcpReq }) => {
        const messages = [user({ type: 'text', text: prompt })];
        const { content } = await mcpReq.requestSampling({ messages, maxTokens: 100 });
        return text(`LLM response: ${content.text ?? JSON.stringify(content)}`);
    });
    tool('test_elicitation', { message: z.string() }, async ({ message }, { mcpReq }) => {
        const requestedSchema = object({
            username: { type: 'string', description: "User's response" },
            email: { type: 'string', description: "User's email address" }
        });
        const { action, content } = await mcpReq.elicitInput({ message, requestedSchema });
        return text(`User response: action: ${action}, content: ${JSON.stringify(content ?? {})}`);
    });
    tool('test_elicitation_sep1034_defaults', {}, async (_, { mcpReq }) => {
        const requestedSchema = object({
            name: { type: 'string', default: 'John Doe' },
            age: { type: 'integer', default: 30 },
            score: { type: 'number', default: 95.5 },
            status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
            verified: { type: 'boolean', default: true }
        });
        return answered(await mcpReq.elicitInput({ message: 'Please review the defaults', requestedSchema }));
    });
    tool('test_elicitation_sep1330_enums', {}, async (_, { mcpReq }) => {
        const names = ['Option One', 'Option Two', 'Option Three'];
        const requestedSchema = object(
            {
                untitledSingle: { type: 'string', enum: options },
                titledSingle: { type: 'string', oneOf: titled(words, 'Option') },
                legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: names },
                untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
                titledMulti: { type: 'array', items: { anyOf: titled(words, 'Choice') } }
            },
            []
        );
        return answered(await mcpReq.elicitInput({ message: 'Please choose', requestedSchema }));
    });
}

/** The modern way to ask: the call ends with questions and is made again with the answers. */
function multi_round_tools(tool) {
    const ask = (message, properties) => inputRequired.elicit({ message, requestedSchema: object(properties) });
    const ask_name = () => ask('What is your name?', { name: { type: 'string' } });
    const ask_model = question =>
        inputRequired.createMessage({ messages: [user({ type: 'text', text: question })], maxTokens: 100 });
    const confirm = () => ask('Please confirm', { ok: { type: 'boolean' } });
    const answers = ({ mcpReq }, ...keys) => keys.every(key => mcpReq.inputResponses?.[key] !== undefined);

    tool('test_input_required_result_elicitation', {}, (_, { mcpReq }) => {
        const answer = acceptedContent(mcpReq.inputResponses, 'user_name', z.object({ name: z.string() }));
        return answer ? text(`Hello, ${answer.name}!`) : inputRequired({ inputRequests: { user_name: ask_name() } });
    });
    tool('test_input_required_result_sampling', {}, (_, context) =>
        answers(context, 'capital_question')
            ? text(JSON.stringify(context.mcpReq.inputResponses.capital_question))
            : inputRequired({ inputRequests: { capital_question: ask_model('What is the capital of France?') } })
    );
    tool('test_input_required_result_list_roots', {}, (_, context) =>
        answers(context, 'client_roots')
            ? text(JSON.stringify(context.mcpReq.inputResponses.client_roots))
            : inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } })
    );
    for (const name of ['request_state', 'tampered_state']) {
        tool(`test_input_required_result_${name}`, {}, async (_, context) =>
            answers(context, 'confirm') && context.mcpReq.requestState()
                ? text('state-ok')
                : inputRequired({ inputRequests: { confirm: confirm() }, requestState: await state.mint({ name }) })
        );
    }
    tool('test_input_required_result_multiple_inputs', {}, async (_, context) =>
        answers(context, 'user_name', 'greeting', 'client_roots') && context.mcpReq.requestState()
            ? text('all answered')
            : inputRequired({
                  inputRequests: {
                      user_name: ask_name(),
                      greeting: ask_model('Write a greeting'),
                      client_roots: inputRequired.listRoots()
                  },
                  requestState: await state.mint({ name: 'multiple_inputs' })
              })
    );
    tool('test_input_required_result_multi_round', {}, async (_, context) => {
        const round = answers(context, 'step1') || answers(context, 'step2') ? context.mcpReq.requestState()?.round ?? 0 : 0;
        if (round === 2) return text('both rounds done');
        const question = round === 0 ? ask('Step 1', { name: { type: 'string' } }) : ask('Step 2', { color: { type: 'string' } });
        return inputRequired({
            inputRequests: { [`step${round + 1}`]: question },
            requestState: await state.mint({ round: round + 1 })
        });
    });
    tool('test_input_required_result_capabilities', {}, (_, { mcpReq }) => {
        const can = mcpReq.envelope?.[CAPABILITIES] ?? {};
        const inputRequests = {};
        if (can.sampling) inputRequests.greeting = ask_model('Write a greeting');
        if (can.elicitation) inputRequests.user_name = ask_name();
        return Object.keys(inputRequests).length > 0 ? inputRequired({ inputRequests }) : text('nothing to ask');
    });
    tool('test_streaming_elicitation', {}, (_, context) =>
        answers(context, 'user_name') ? text('done') : inputRequired({ inputRequests: { user_name: ask_name() } })
    );
    // The SDK itself refuses to ask a client for what it didn't declare.
    tool('test_missing_capability', {}, (_, context) =>
        answers(context, 'greeting') ? text('done') : inputRequired({ inputRequests: { greeting: ask_model('Hello') } })
    );
}

function schema_tool(server) {
    const inputSchema = fromJsonSchema({
        $schema: 'https://json-schema.org/draft/2020-12/schema',
        type: 'object',
        $defs: {
            address: {
                $anchor: 'addressDef',
                type: 'object',
                properties: { street: { type: 'string' }, city: { type: 'string' } }
            }
        },
        properties: {
            name: { type: 'string' },
            address: { $ref: '#/$defs/address' },
            contactMethod: { type: 'string', enum: ['phone', 'email'] },
            phone: { type: 'string' },
            email: { type: 'string' }
        },
        allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
        if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
        then: { required: ['phone'] },
        else: { required: ['email'] },
        additionalProperties: false
    });
    const description = 'Tool with JSON Schema 2020-12 features';
    server.registerTool('json_schema_2020_12_tool', { description, inputSchema }, values => text(JSON.stringify(values)));
}

/** Tools that change the lists, so that their subscribers are told. What one call adds, the next takes away. */
function changing_tools(server, tool) {
    const description = 'comes and goes';
    let added_tool, added_prompt;
    const toggled = (added, add) => {
        if (!added) return add();
        added.remove();
    };
    tool('test_trigger_tool_change', {}, () => {
        added_tool = toggled(added_tool, () => server.registerTool('test_temporary', { description }, () => text('here')));
        return text('changed');
    });
    tool('test_trigger_prompt_change', {}, () => {
        const get = () => ({ messages: [] });
        added_prompt = toggled(added_prompt, () => server.registerPrompt('test_temporary', { description }, get));
        return text('changed');
    });
}

function resources(server, era) {
    const plain = (name, uri, mimeType, contents) =>
        server.registerResource(name, uri, { description: name, mimeType }, () => ({ contents: [{ uri, mimeType, ...contents }] }));
    plain('static-text', 'test://static-text', 'text/plain', { text: 'This is the content of the static text resource.' });
    plain('static-binary', 'test://static-binary', 'image/png', { blob: PNG });
    plain('watched-resource', 'test://watched-resource', 'text/plain', { text: 'Watched resource content' });
    const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
    server.registerResource('template', template, { mimeType: 'application/json' }, (uri, { id }) => {
        const data = { id, templateTest: true, data: `Data for ID: ${id}` };
        return { contents: [{ uri: uri.href, mimeType: 'application/json', text: JSON.stringify(data) }] };
    });
    if (era !== 'legacy') return;
    server.server.setRequestHandler('resources/subscribe', () => ({}));
    server.server.setRequestHandler('resources/unsubscribe', () => ({}));
}

function prompts(server) {
    const prompt = (name, argsSchema, get) => server.registerPrompt(name, { description: name, argsSchema }, get);
    const line = value => user({ type: 'text', text: value });
    prompt('test_simple_prompt', undefined, () => ({ messages: [line('This is a simple prompt for testing.')] }));
    const completed = z.string().describe('First test argument');
    const two = { arg1: completable(completed, start => ['paris', 'park', 'party'].filter(word => word.startsWith(start))) };
    two.arg2 = z.string().describe('Second test argument');
    prompt('test_prompt_with_arguments', z.object(two), ({ arg1, arg2 }) => ({
        messages: [line(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)]
    }));
    prompt('test_prompt_with_embedded_resource', z.object({ resourceUri: z.string() }), ({ resourceUri }) => ({
        messages: [
            user(embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.')),
            line('Please process the embedded resource above.')
        ]
    }));
    prompt('test_prompt_with_image', undefined, () => ({
        messages: [user({ type: 'image', data: PNG, mimeType: 'image/png' }), line('Please analyze the image above.')]
    }));
    prompt('test_input_required_result_prompt', undefined, ({ mcpReq }) => {
        const answer = acceptedContent(mcpReq.inputResponses, 'user_context');
        if (answer) return { messages: [line(`Context: ${JSON.stringify(answer)}`)] };
        const requestedSchema = object({ context: { type: 'string' } });
        const user_context = inputRequired.elicit({ message: 'What context should the prompt use?', requestedSchema });
        return inputRequired({ inputRequests: { user_context } });
    });
}

function create({ era }) {
    const listChanged = true;
    const server = new McpServer(
        { name: 'interop-conformance', version: '1' },
        {
            capabilities: {
                tools: { listChanged },
                prompts: { listChanged },
                resources: { listChanged, subscribe: true },
                completions: {},
                logging: {}
            },
            requestState: { verify: state.verify }
        }
    );
    const tool = (name, inputs, call) => {
        server.registerTool(name, { description: name, inputSchema: z.object(inputs) }, call);
    };
    content_tools(tool);
    if (era === 'legacy') asking_tools(tool);
    else multi_round_tools(tool);
    schema_tool(server);
    changing_tools(server, tool);
    resources(server, era);
    prompts(server);
    return server;
}

serveStdio(create);
