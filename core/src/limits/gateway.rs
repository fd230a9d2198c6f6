//! The bounds of the gateway: its servers and their lists, its clients over HTTP (`FRONT_`), its links to servers over
//! HTTP, pins, and the spans that it sends.

use std::time::Duration;

use super::{MESSAGE_BYTES_MAX, OUTBOX_BYTES_MAX, STATE_FILE_BYTES_MAX};

/// The same for the client of a gateway on stdio: its answers are lists of all servers, and it may ask for many of them at
/// once.
pub const GATEWAY_UNREAD_BYTES_MAX: usize = 16 * OUTBOX_BYTES_MAX;

/// Servers of one gateway: each has processes, queues and a place in the list of tools. With one more, the
/// configuration is refused.
pub const SERVERS_MAX: usize = 500;

/// Tokens of one gateway: each request is held against all of them. With one more, the configuration is
/// refused.
pub const TOKENS_MAX: usize = 1_000;

/// The shortest token, in characters: a shorter one can be guessed.
pub const TOKEN_CHARS_MIN: usize = 16;

/// The longest token, in characters: it has to fit into a header beside others.
pub const TOKEN_CHARS_MAX: usize = 4 * 1024;

/// Calls that may be on their way to one server at once, where it does not say otherwise: far more than
/// agents make, far fewer than would fill the memory.
pub const SERVER_IN_FLIGHT_MAX: usize = 256;

/// Clients of one gateway at once, where nothing else is said.
pub const GATEWAY_CLIENTS_MAX: usize = 1_000;

/// The largest request that a gateway takes over HTTP, where nothing else is said: one message.
pub const GATEWAY_BODY_BYTES_MAX: u64 = MESSAGE_BYTES_MAX as u64;

/// When a client over HTTP that says nothing is forgotten, where nothing else is said.
pub const GATEWAY_SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// The longest name of a tool or prompt, or URI of a resource; an entry with a longer one is left out.
pub const CATALOG_NAME_CHARS_MAX: usize = 4_096;

/// Brackets in one another within an entry; one with more is left out: many readers of JSON end at 128, and with
/// them the list of all servers.
pub const CATALOG_DEPTH_MAX: usize = 100;

/// Pages of one list that a server is asked for; what comes after them is left out, and said.
pub const CATALOG_PAGES_MAX: usize = 1_000;

/// Entries that one server's list may have; more are left out, and said.
pub const CATALOG_ENTRIES_MAX: usize = 10_000;

/// The same in bytes.
pub const CATALOG_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How often in a row a list is read from its beginning because the server says that it has changed…
pub const READINGS_IN_A_ROW_MAX: u32 = 8;

/// …within this time; then it is read again when this is over. Some servers say so whenever they are asked.
pub const READINGS_PAUSE: Duration = Duration::from_secs(1);

/// Names that two servers have which one line of the log names; of the rest it says how many.
pub const CLASHES_NAMED: usize = 5;

/// Bytes of what is pinned of one list of a server, its names included. A server of 100 tools has about 200 kB. What
/// does not fit is left out of the list, which is logged; so are longer instructions. With `pin = "off"` nothing is.
pub const PIN_LIST_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of all pins of a user. At the bound, the pins of the servers that were used least recently are forgotten: what
/// these have the next time counts as their first use.
pub const PINS_BYTES_MAX: usize = 12 * 1024 * 1024;

/// Bytes that an item takes in the file of the pins besides its name and its text.
pub const PIN_ITEM_BYTES: usize = 64;

/// How old the note of a server's last use may be before it is renewed: a gateway that starts often does not write often.
pub const PIN_USED_STEP: Duration = Duration::from_secs(24 * 60 * 60);

/// How often a gateway looks whether the user has accepted changes, while there are some to accept.
pub const PINS_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Changes of pins that wait to be written; there are four lists of a server. At the bound, the oldest is dropped: it comes again
/// with the next reading of that list.
pub const PIN_UPDATES_MAX: usize = 1_024;

/// Tools that have changed which one line of the log names; of the rest it says how many.
pub const PIN_NAMES_SHOWN: usize = 10;

// A server has four lists, as they are pinned and as they are now; in the file, each byte of a text can take two.
const _: () = assert!(8 * PIN_LIST_BYTES_MAX <= PINS_BYTES_MAX);
const _: () = assert!(2 * PINS_BYTES_MAX as u64 <= STATE_FILE_BYTES_MAX);

/// Bytes of one list of a server that is stored for the next run. A server of 100 tools has about 200 kB. A longer list is
/// not stored: its tools appear when the server is ready.
pub const STORED_LIST_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of all stored lists of a user. At the bound, those of the servers that were used least recently are forgotten.
pub const STORED_CATALOGS_BYTES_MAX: usize = 12 * 1024 * 1024;

/// Bytes that an entry takes in the file of the lists besides its text.
pub const STORED_ENTRY_BYTES: usize = 64;

// A server has three stored lists; in the file, each byte of a text can take two.
const _: () = assert!(3 * STORED_LIST_BYTES_MAX <= STORED_CATALOGS_BYTES_MAX);
const _: () = assert!(2 * STORED_CATALOGS_BYTES_MAX as u64 <= STATE_FILE_BYTES_MAX);

/// Entries of a list that a client gets at once; the rest comes with the next page. Some clients read one page only: it
/// has to hold what people put behind one gateway. Twelve well-known servers have 166 tools together.
pub const PAGE_ENTRIES_MAX: usize = 2_000;

/// The same in bytes, which one entry alone may pass. These 166 tools take 190 kB, and those of the server with the longest
/// texts 3.4 kB each: 1,000 such tools fit.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

const _: () = assert!(PAGE_BYTES_MAX <= TURN_ANSWERS_BYTES_MAX);
const _: () = assert!(2 * PAGE_BYTES_MAX <= GATEWAY_UNREAD_BYTES_MAX);

/// How long a client's `initialize` waits for servers that are still starting, from when these were first
/// spoken to: what they say of themselves is in its answer. Clients give it 10 s, some for
/// all that they do at the beginning.
pub const GATEWAY_HELLO_WAIT: Duration = Duration::from_secs(2);

/// How long its first lists wait for them, unless the configuration says otherwise (`start_wait`). Then they are answered
/// with what is there, and the client is told when more comes. The shortest time that a client gave its first answer
/// was 5 s.
pub const GATEWAY_START_WAIT: Duration = Duration::from_secs(4);

const _: () = assert!(GATEWAY_HELLO_WAIT.as_millis() <= GATEWAY_START_WAIT.as_millis());

/// How long a question of a server's waits for a client that is still beginning its session; then it is
/// answered with an error. Servers themselves wait for 60 s or longer.
pub const QUESTION_WAIT: Duration = Duration::from_secs(30);

/// How long a client of the newer protocol may take to answer what an older server asks: its user may have to think. Then
/// the server gets an error, and the call is cancelled.
pub const HELD_CALL_WAIT: Duration = Duration::from_secs(10 * 60);

/// Calls of one token that wait for answers of its clients; the question of one more is refused.
pub const HELD_CALLS_MAX: usize = 64;

/// Questions of a server within one such call; one more is refused. Servers ask one after another.
pub const HELD_QUESTIONS_MAX: usize = 16;

/// The longest question that is asked by the result of a call; a longer one is refused. One of 1 MiB has pictures in it.
pub const HELD_QUESTION_BYTES_MAX: usize = 1024 * 1024;

/// The longest answer to a call that is kept while its client is being asked; a longer one is an error.
pub const HELD_ANSWER_BYTES_MAX: usize = 256 * 1024;

/// How long a call waits for its server to ask for the roots that it was told of…
pub const ROOTS_ASKED_WAIT: Duration = Duration::from_secs(2);

/// …and to look at them, once it has them: servers check each folder, and answer calls meanwhile as if there were none.
pub const ROOTS_TAKEN_WAIT: Duration = Duration::from_millis(200);

/// Tasks of one token that the gateway knows the servers of; with one more, the oldest is forgotten and cannot be polled any
/// more.
pub const GATEWAY_TASKS_MAX: usize = 1_000;

/// Characters of the name that a client gives itself by which requests without a session are told apart.
pub const CLIENT_NAME_CHARS_MAX: usize = 128;

/// How long the gateway waits before it opens a session again that a server refused.
pub const SESSION_RETRY: Duration = Duration::from_secs(5);

/// How long a server may take to say whether it knows the newer protocol; then it is spoken to in the older.
pub const PROBE_MAX: Duration = Duration::from_secs(10);

/// Calls in a row that a server leaves unanswered beyond its `call_timeout` before the next ones are
/// answered at once, with an error…
pub const TIMEOUTS_IN_A_ROW_MAX: u32 = 3;

/// …for this long; then one call is let through to see.
pub const CIRCUIT_OPEN_FOR: Duration = Duration::from_secs(30);

/// Bytes of a query, or of one text of a tool's definition, that the search looks at.
pub const RANKED_TEXT_BYTES_MAX: usize = 16 * 1024;

/// Words of such a text that it looks at.
pub const RANKED_WORDS_MAX: usize = 1_000;

/// How deep parameters of a tool lie in one another that it looks at; what lies deeper says little about the tool.
pub const RANKED_DEPTH_MAX: usize = 3;

/// Tools that `find_tools` answers with, unless asked for fewer or more…
pub const FOUND_TOOLS: usize = 10;

/// …up to this many.
pub const FOUND_TOOLS_MAX: usize = 50;

/// Requests that one client may have on their way through the gateway. One more is answered at once, with
/// an error.
pub const CLIENT_FLIGHTS_MAX: usize = 1_000;

/// Resources that one client may be subscribed to; one more is answered with an error.
pub const CLIENT_SUBSCRIPTIONS_MAX: usize = 1_000;

/// Bytes of the URIs of these resources; one that is too much is answered with an error. Room for all of them where they
/// are as long as usual, and a thousand clients cannot fill the memory.
pub const CLIENT_SUBSCRIPTIONS_BYTES_MAX: usize = 128 * 1024;

/// Bytes of what a client wants to hear of by one `subscriptions/listen`; more is answered with an error.
pub const LISTEN_FILTER_BYTES_MAX: usize = 2 * CLIENT_SUBSCRIPTIONS_BYTES_MAX;

/// Bytes of the id of a client's request; one with a longer id is answered with an error, and a batch with one is refused.
/// Ids are numbers or UUIDs, and stay in memory until the answer.
pub const CLIENT_ID_BYTES_MAX: usize = 1_024;

/// Bytes of what a client says of itself, in the parameters of `initialize` or in the `_meta` of its requests; more is
/// answered with an error. All known clients need less than 3 KiB, and each session keeps it.
pub const CLIENT_INTRODUCTION_BYTES_MAX: usize = 16 * 1024;

/// Streams of notifications that one client may have open; one more is answered with an error.
pub const CLIENT_LISTENS_MAX: usize = 32;

/// Brackets in one another in a message of a gateway's client. A deeper one is answered with an error and not passed on:
/// many readers of JSON end at 128, some by a full stack, and with them a server that others use too.
pub const MESSAGE_DEPTH_MAX: usize = 127;

/// Bytes of answers that the gateway writes for one input: a list, a batch of lists. The rest of the batch is answered
/// with an error (`server_busy`); requests that waited for a server go on in the next turn.
pub const TURN_ANSWERS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes for clients over HTTP after which connections get turns to write them, and others to send their requests…
pub const TURN_TOLD_BYTES_MAX: usize = 1024 * 1024;

/// …where each message counts for so many more: short ones take time too…
pub const TURN_TOLD_EACH_BYTES: usize = 4 * 1024;

/// …so many: a new connection needs some to be accepted, read and understood. With one, each of them would wait for
/// another client's batch.
pub const TURNS_GIVEN: usize = 16;

/// Lines of servers over HTTP that wait for the loop; then their links wait, and the servers with them.
pub const REMOTE_WORDS_MAX: usize = 64;

/// Lines of one server that are passed on before others have their turn, and connections of clients get to
/// write what they were given: who reads all the time is then not taken for one that does not.
pub const LINES_IN_A_ROW_MAX: usize = 256;

/// What clients, trail and log get each at the end to take what is for them, however late it is; they have more
/// where servers end sooner. All of it has to end within [`CLIENT_GONE_WITHIN`](super::CLIENT_GONE_WITHIN).
pub const GATEWAY_LAST_WAIT: Duration = Duration::from_millis(50);

/// Connections over HTTP that are served at once. For one more, one that waits for a request is closed: the oldest that
/// never sent a whole head, else the one that was idle for longest. Where all are served, more wait in the kernel's
/// queue. A client has one for what it is told and one for each request.
pub const FRONT_CONNECTIONS_MAX: usize = 1_536;

/// Connections beyond that which may be there while those that were closed for them end.
pub const FRONT_CONNECTIONS_ENDING_MAX: usize = 64;

/// Requests over HTTP that wait for the loop; who asks more waits.
pub const FRONT_ASKS_MAX: usize = 64;

/// Those of one token among them, so that one with long batches delays the others by a few of them at the most: the loop
/// takes one after another, and has the next when it has done one.
pub const FRONT_TOKEN_ASKS_MAX: usize = 4;

/// How long a new connection may take to say what it wants; then it is closed.
pub const FRONT_HEAD_WAIT: Duration = Duration::from_secs(10);

/// How long a connection may be open without a request, or with half of one. Then it is closed, and the
/// client connects again.
pub const FRONT_IDLE_WAIT: Duration = Duration::from_secs(60);

/// How long the body of a request may take; then it is refused. Megabytes over a slow line take some seconds.
pub const FRONT_BODY_WAIT: Duration = Duration::from_secs(15);

/// How long the rest of a body is read that is refused.
pub const FRONT_REFUSED_WAIT: Duration = Duration::from_secs(2);

/// What each body of a request has for itself, so that small ones never wait for room: no more than what is read
/// from each connection anyway.
pub const FRONT_BODY_OWN_BYTES: usize = 16 * 1024;

/// What bodies have besides, all together, while they come or wait for the loop; one that is alone may be longer. A body
/// that finds no room is not read until there is some, for as long as a body may take, and is refused then.
pub const FRONT_BODIES_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bodies that wait for room at once; one more is refused. Each keeps what has come of it, and the buffers of its
/// connection.
pub const FRONT_BODIES_WAITING_MAX: usize = 32;

/// How much of that a body takes at once.
pub const FRONT_BODY_STEP_BYTES: usize = 64 * 1024;

/// Where there is no room, a body that did not bring another step within this time is refused, and others get
/// its place. A client that really sends is faster.
pub const FRONT_BODY_STALLED: Duration = Duration::from_secs(1);

/// What is read from a connection, or waits to be written to it, at once: a head has to fit in.
pub const FRONT_BUFFER_BYTES: usize = 16 * 1024;

/// What is read of a body that is refused, so that the client gets to read the refusal.
pub const FRONT_REFUSED_BYTES_MAX: usize = 1024 * 1024;

/// How long requests and streams get at the end to be told so, from when we are told to go: servers end
/// meanwhile…
pub const FRONT_CLOSE_WAIT: Duration = Duration::from_millis(500);

/// …and however long these take, for what is said last. A connection without a request, or with half of one,
/// gets no more from the beginning.
pub const FRONT_LAST_WAIT: Duration = Duration::from_millis(100);

/// Messages that wait for one connection; one more, and the client counts as one that does not read: its
/// connection is closed, and it can go on where it was.
pub const FRONT_UNREAD_MAX: usize = 1_024;

/// The same in bytes; a single message may be longer.
pub const FRONT_UNREAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A message up to this length is a short one. Short and long ones have room of their own among what is not read, so that
/// an error finds room where a long answer finds none.
pub const FRONT_SHORT_BYTES: usize = 1024;

/// What a message that is not read costs besides its bytes.
pub const FRONT_UNREAD_EACH_BYTES: usize = 128;

/// Bytes of long messages that all connections of one token have not taken; a single message may be longer. An answer
/// beyond it is replaced by an error (`server_busy`), for any other message its connection is closed.
pub const FRONT_UNREAD_TOKEN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The same for all tokens together: the longest message fits, if it is alone.
pub const FRONT_UNREAD_ALL_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 1024 * 1024;

/// Bytes of short messages that all connections of one token have not taken. At one more its connection is closed.
pub const FRONT_SHORT_TOKEN_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The same for all tokens together.
pub const FRONT_SHORT_ALL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What each token has of these, however much others have: clients that do not read take nothing from others.
pub const FRONT_UNREAD_OWN_BYTES: usize = 1024 * 1024;

/// Of the room for clients this share, as its divisor, is kept for tokens, in equal parts. What a token does not use of
/// its part is used by no other; the rest is for all. Where a token has no room, its session that was idle for longest
/// makes room, and none of another token.
pub const FRONT_RESERVED_PART: usize = 2;

/// A request that has no answer after this time gets the beginning of a stream: clients and proxies give up on
/// a connection over which nothing comes, and a stream can be resumed.
pub const FRONT_QUIET_MAX: Duration = Duration::from_secs(5);

/// Quiet streams get no sign of life more often than this: each wakes the gateway and all listening clients.
pub const FRONT_SIGN_MIN: Duration = Duration::from_secs(1);

/// How long a client should wait before it connects again to go on with a stream.
pub const FRONT_RETRY: Duration = Duration::from_secs(1);

/// Requests of one session that have no answer yet; more are refused.
pub const FRONT_REQUESTS_MAX: usize = 1_024;

/// Messages in one batch; a longer one is refused as a whole.
pub const FRONT_BATCH_MAX: usize = 1_000;

/// Messages of one stream that are kept for a client that comes back, or that has no stream yet. The oldest
/// goes when one more comes.
pub const FRONT_KEPT_MAX: usize = 256;

/// The same in bytes; the last message is kept however long it is.
pub const FRONT_KEPT_BYTES_MAX: usize = 64 * 1024;

/// The same for all streams: those that ended first are forgotten first, then each keeps only its last
/// message, and that only where it is a short one.
pub const FRONT_KEPT_ALL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The longest id of a session that is read for its signature; a longer one is of no session.
pub const SESSION_ID_BYTES_MAX: usize = 1_024;

/// Bytes of what a client said in `initialize` that its session's id has; the id of one that said more, without what nobody
/// knows, is not signed, and its session ends with the gateway.
pub const SESSION_PARAMS_BYTES_MAX: usize = 480;

/// Characters of the client's name and of its version in there; the rest is cut off.
pub const SESSION_NAME_CHARS_MAX: usize = 40;

/// How long after its beginning a session goes on in a gateway that was restarted; then it begins anew.
pub const SESSION_RESUMABLE_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the answer that ends a session waits for the disk, so that the session stays ended also where the gateway is
/// killed then; after it the answer is given, and the log says so. Clients wait longer than that.
pub const SESSION_END_WAIT: Duration = Duration::from_secs(2);

/// Sessions that ended and are remembered until their ids expire, so that they stay ended. With more, no session of before
/// goes on after a restart.
pub const ENDED_SESSIONS_MAX: usize = 2_000;

/// Streams that have ended and are kept for a client that did not get their end.
pub const FRONT_ENDED_MAX: usize = 1_024;

/// Addresses without a session whose rate is counted; those that were quiet for a second need no place.
/// With more, others are refused until one is quiet.
pub const FRONT_CALLERS_MAX: usize = 4_096;

const _: () = assert!(FRONT_HEAD_WAIT.as_millis() <= FRONT_IDLE_WAIT.as_millis());
const _: () = assert!(FRONT_BODY_OWN_BYTES <= FRONT_BUFFER_BYTES);
const _: () = assert!(FRONT_BODIES_BYTES_MAX.is_multiple_of(FRONT_BODY_STEP_BYTES));
const _: () = assert!(FRONT_BODY_STALLED.as_millis() < FRONT_BODY_WAIT.as_millis());
const _: () = assert!(FRONT_CLOSE_WAIT.as_millis() + FRONT_LAST_WAIT.as_millis() < 1_000);
const _: () = assert!(FRONT_KEPT_BYTES_MAX <= FRONT_UNREAD_BYTES_MAX);
const _: () = assert!(FRONT_KEPT_MAX < FRONT_UNREAD_MAX);
const _: () = assert!(2 * LINES_IN_A_ROW_MAX <= FRONT_UNREAD_MAX);
// A turn of the loop never fills what a token may have unread.
const _: () = assert!(2 * TURN_ANSWERS_BYTES_MAX <= FRONT_UNREAD_TOKEN_BYTES_MAX);
const _: () = assert!(FRONT_UNREAD_BYTES_MAX <= FRONT_UNREAD_TOKEN_BYTES_MAX);

/// The wait before a server is tried again that could not be reached; the first time it is at once, and
/// each wait that follows is twice as long. A request meanwhile does not wait longer
/// than this for the next try.
pub const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// And none is longer than this, jitter included.
pub const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(60);

/// Up to this much is added to each wait at random, as a share of it: many links to a server that was
/// restarted must not come back in one moment.
pub const RECONNECT_JITTER: f64 = 0.5;

/// A stream or a session that lasted this long was fine: the waits begin anew.
pub const STREAM_STABLE: Duration = Duration::from_secs(5);

/// A server that says by `Retry-After` to wait longer than this is asked again after it.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// The same, for the `retry` of an event stream.
pub const STREAM_RETRY_MAX: Duration = Duration::from_secs(60);

/// How long a server that may speak the old HTTP with server-sent events has for the beginning of its
/// stream; then it speaks something else.
pub const GUESS_WAIT: Duration = Duration::from_secs(10);

/// Exchanges of one link that may be under way at once, each on a connection of its own. More wait.
pub const EXCHANGES_MAX: usize = 128;

/// How long a server may take to accept a notification; then its exchange is closed.
pub const NOTICE_WAIT: Duration = Duration::from_secs(30);

/// How often one request is given to a server that forgets its session each time; then it is answered
/// with an error.
pub const SENDINGS_MAX: u32 = 3;

/// How often a broken stream of a request is taken up in vain; then the request counts as lost.
pub const RESUMES_MAX: u32 = 6;

/// Characters of an answer that is no MCP that are shown.
pub const REPLY_EXCERPT_CHARS_MAX: usize = 200;

/// A longer session id, id of an event or name of a header is none: it would not fit into a head.
pub const HEADER_VALUE_BYTES_MAX: usize = 4 * 1024;

/// Lines that wait for a link's task. One more request is answered with an error; one more notification
/// is dropped, and said.
pub const LINK_QUEUE_LEN_MAX: usize = 1_000;

/// The same, in bytes. One alone may have any length.
pub const LINK_QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What exchanges have brought and the link's task has not looked at; those then wait.
pub const LINK_NEWS_MAX: usize = 64;

/// How long a link that ends tries to end its session too.
pub const LINK_FAREWELL_WAIT: Duration = Duration::from_millis(500);

/// How long a stream may go on after its answer, so that its connection can be used again.
pub const STREAM_LINGER: Duration = Duration::from_secs(2);

/// Idle connections of one link that are kept.
pub const IDLE_CONNECTIONS_MAX: usize = 8;

/// For so long, where the server does not say: below the 5 s after which those of Node.js and uvicorn
/// hang up, which would break off a call that is just being sent.
pub const IDLE_CONNECTION_MAX: Duration = Duration::from_secs(4);

/// And where it does say, no longer than this.
pub const IDLE_CONNECTION_NAMED_MAX: Duration = Duration::from_secs(600);

/// How long a connection may take to be there, with everything that makes it secure.
pub const HTTP_OPEN_WAIT: Duration = Duration::from_secs(10);

/// What is read of an answer that is none, but may say why.
pub const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// Arguments of one tool that are sent as headers; more are not, and the server may say so.
pub const PARAM_HEADERS_MAX: usize = 32;

/// Tools of one server whose arguments are sent as headers; those of more are not.
pub const MARKED_TOOLS_MAX: usize = 1_000;

/// Spans that go in one request; as many as OpenTelemetry's own senders take.
pub const SPAN_BATCH_MAX: usize = 512;

/// A span that has waited for so long is sent with the others that wait.
pub const SPAN_BATCH_WAIT: Duration = Duration::from_secs(5);

/// Spans that wait to be sent. With one more the new one is lost, counted and said: what is traced is the
/// work, and nothing of it waits for the receiver.
pub const SPANS_WAITING_MAX: usize = 2_048;

/// Spans on their way to the task that sends them, which only puts them into its queue. More are lost, and
/// counted.
pub const SPANS_UNHEARD_MAX: usize = 1_024;

/// A longer text in a span is cut.
pub const SPAN_TEXT_CHARS_MAX: usize = 256;

/// A longer `tracestate` is left out, as W3C allows: its parts mean nothing when they are cut.
pub const TRACE_STATE_BYTES_MAX: usize = 512;

/// How long one request with spans may take, from the look-up of the name to the end of the answer:
/// OpenTelemetry's own value.
pub const SPANS_REQUEST_WAIT: Duration = Duration::from_secs(10);

/// What is read of the answer; it is only looked at for what was not taken.
pub const SPANS_ANSWER_BYTES_MAX: usize = 16 * 1024;

/// The wait after the first request that failed; after each further one it is twice as long.
pub const SPANS_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The longest of these waits, also where the receiver asks for more.
pub const SPANS_RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// Tries with one batch. Then its spans are lost, and said.
pub const SPANS_TRIES_MAX: u32 = 5;

/// That spans are lost is said this often at most.
pub const SPANS_LOST_QUIET: Duration = Duration::from_secs(60);

/// What is left is sent within this time when the gateway ends; what is left then is said.
pub const SPANS_CLOSE_WAIT: Duration = Duration::from_millis(500);

const _: () = assert!(SPAN_BATCH_MAX <= SPANS_WAITING_MAX);
const _: () = assert!(SPANS_RETRY_DELAY.as_millis() <= SPANS_RETRY_DELAY_MAX.as_millis());
