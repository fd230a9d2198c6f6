//! What hostile servers write into a list: entries, proper ones and others, and pages of them.

use std::fmt::Write as _;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap_or(0)
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A list that a server can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] =
        [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    pub(crate) fn method(self) -> &'static str {
        ["tools/list", "prompts/list", "resources/list", "resources/templates/list"][self as usize]
    }

    /// The member of the answer, and the member of an entry that names it.
    pub(crate) fn members(self) -> (&'static str, &'static str) {
        [
            ("tools", "name"),
            ("prompts", "name"),
            ("resources", "uri"),
            ("resourceTemplates", "uriTemplate"),
        ][self as usize]
    }

    pub(crate) fn capability(self) -> &'static str {
        ["tools", "prompts", "resources", "resources"][self as usize]
    }

    pub(crate) fn has_prefix(self) -> bool {
        matches!(self, Self::Tools | Self::Prompts)
    }
}

/// One entry as it stands in a list, and its name where it is a proper one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    pub(crate) raw: Vec<u8>,
    pub(crate) own: Option<String>,
}

/// One page, as a server answers it.
#[derive(Clone, Debug)]
pub(crate) enum Page {
    Entries(Vec<Listed>),
    /// Another answer, from its `result` or `error` on.
    Other(&'static str),
}

/// Few, so that servers have the same ones, and some that look like those of others or of our own.
const NAMES: [&str; 25] = [
    "get",
    "set",
    "a__get",
    "__get",
    "b__get",
    "find_tools",
    "afresh_find_tools",
    "call_tool",
    "restart_server",
    "afresh_server_status",
    "server_logs",
    "afresh:server_logs",
    "get*",
    "*",
    " ",
    "get ",
    "GET",
    "gét",
    "工具",
    "\u{202e}teg",
    "a\"b\\c",
    "line\nbreak\r\t",
    "\u{0}\u{1f}",
    "file:///a/{id}",
    "{",
];

/// What a name may be that is none.
const NO_NAMES: [&str; 10] =
    ["", "7", "null", "true", "[\"get\"]", "{\"get\":1}", r#""\ud800""#, r#""\x""#, "\"\"", "-"];

/// What may stand beside the name.
const MEMBERS: [&str; 10] = [
    r#""description":"does it""#,
    r#""description":"\u0000\n\"}]{[,""#,
    r#""description":"é工具\u202e""#,
    r#""inputSchema":{"type":"object","properties":{"name":{"type":"string"},"a":{"x-mcp-header":"A"}}}"#,
    r#""Name":"set","names":["set"],"":1"#,
    r#""title":null,"annotations":{"name":"set","uri":"set"}"#,
    r#""_meta":{"x":[1.50,-2e3,true,false,null,[],{}]}"#,
    r#""mimeType":"text/plain","size":123456789012345678901234567890"#,
    r#""description":"a","description":"b""#,
    r#""\u0064escription":"a""#,
];

/// What may stand there, and makes something else than JSON of it; all brackets are in pairs.
const BROKEN: [&[u8]; 12] = [
    br#""a":{b}"#,
    br#""a":[1 2]"#,
    br#""a":[1,]"#,
    br#""a":{"b":}"#,
    br#""a":{"b":tru}"#,
    br#""a":[}"#,
    br#""a":01"#,
    br#""a":{"b":"\q"}"#,
    b"\"a\":[\"\t\"]",
    b"\"a\":[\"\xff\"]",
    b"\"a\":[\"\xed\xa0\x80\"]",
    br#""a":[+1]"#,
];

/// How long a name may be.
const NAME_CHARS_MAX: usize = afresh_core::limits::CATALOG_NAME_CHARS_MAX;
const DEPTH_MAX: usize = afresh_core::limits::CATALOG_DEPTH_MAX;

/// A name in quotes, in one of the ways in which it can be written.
fn written(random: &mut Random, name: &str) -> String {
    let plain = serde_json::to_string(name).expect("a text");
    if !random.one_in(4) {
        return plain;
    }
    let mut text = "\"".to_owned();
    for unit in name.encode_utf16() {
        write!(text, "\\u{unit:04x}").expect("a text");
    }
    text + "\""
}

impl Random {
    pub(crate) fn name(&mut self) -> String {
        match self.below(400) {
            0 => "é".repeat(NAME_CHARS_MAX),
            1..=10 => format!("get{}", self.below(1_000)),
            _ => (*self.of(&NAMES)).to_owned(),
        }
    }

    fn members(&mut self) -> Vec<Vec<u8>> {
        let count = self.below(3);
        (0..count).map(|_| self.of(&MEMBERS).as_bytes().to_vec()).collect()
    }

    /// One entry.
    pub(crate) fn entry(&mut self, kind: Kind) -> Listed {
        let (_, key) = kind.members();
        let name = self.name();
        let value = written(self, &name);
        let mut members = self.members();
        let proper = format!("\"{key}\":{value}").into_bytes();
        let mut own = None;
        match self.below(24) {
            0 => {}
            1 => {
                let long = "x".repeat(NAME_CHARS_MAX + 1);
                members.push(format!("\"{key}\":\"{long}\"").into_bytes());
            }
            2 => members.push(format!("\"{key}\":{}", self.of(&NO_NAMES)).into_bytes()),
            3 => members.extend([proper, self.of(&BROKEN).to_vec()]),
            // Two names: who reads the first sees another than who reads the last.
            4 => members.extend([format!("\"{key}\":\"set\"").into_bytes(), proper]),
            5 => {
                let other =
                    format!("\"\\u{:04x}{}\":\"set\"", u32::from(key.as_bytes()[0]), &key[1..]);
                members.extend([proper, other.into_bytes()]);
            }
            6 => {
                let (open, shut) = ("[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
                members.extend([proper, format!("\"a\":{open}{shut}").into_bytes()]);
            }
            7 => {
                let raw = self.of(&["7", "null", "\"get\"", "[]", "[{\"name\":\"get\"}]", "{}"]);
                return Listed { raw: raw.as_bytes().to_vec(), own };
            }
            8 => {
                let (open, shut) = ("[".repeat(DEPTH_MAX - 1), "]".repeat(DEPTH_MAX - 1));
                members.extend([proper, format!("\"a\":{open}{shut}").into_bytes()]);
                own = Some(name);
            }
            _ => {
                let at = self.below(members.len() + 1);
                members.insert(at, proper);
                own = Some(name);
            }
        }
        // Some do not tell cases apart.
        if key == "name" && members.iter().any(|member| member.starts_with(b"\"Name\"")) {
            own = None;
        }
        let blank = *self.of(&["", "", " ", "\t "]);
        let raw = [b"{", &members.join(format!("{blank},{blank}").as_bytes())[..], b"}"].concat();
        Listed { raw, own }
    }

    /// All pages of a list.
    pub(crate) fn pages(&mut self, kind: Kind) -> Vec<Page> {
        let count = [1, 1, 1, 2, 3][self.below(5)];
        let mut pages: Vec<Page> = (0..count).map(|_| self.page(kind)).collect();
        if self.one_in(1_000) {
            // More than a client gets at once.
            let many = |random: &mut Self| {
                let own = format!("many{}", random.below(100_000));
                let (_, key) = kind.members();
                Listed { raw: format!(r#"{{"{key}":"{own}"}}"#).into_bytes(), own: Some(own) }
            };
            pages.push(Page::Entries((0..1_100).map(|_| many(self)).collect()));
        }
        pages
    }

    fn page(&mut self, kind: Kind) -> Page {
        const OTHERS: [&str; 11] = [
            r#""error":{"code":-32603,"message":"no"}"#,
            r#""result":{}"#,
            r#""result":null"#,
            r#""result":[]"#,
            r#""result":"tools""#,
            r#""result":{"tools":{},"prompts":{},"resources":{},"resourceTemplates":{}}"#,
            r#""result":{"tools":null,"prompts":7,"resources":"","resourceTemplates":null}"#,
            r#""result":{"Tools":[],"nextCursor":"more"}"#,
            r#""result":{"tools":[1,],"prompts":[,1],"resources":[1 2],"resourceTemplates":[1;2]}"#,
            r#""result":{"tools":[{"name":"get"}],"prompts":[{"name":"get"}],"resources":[{"uri":"get"}],"resourceTemplates":[{"uriTemplate":"get"}]},"error":1"#,
            r#""error":null"#,
        ];
        if self.one_in(20) {
            return Page::Other(OTHERS[self.below(OTHERS.len())]);
        }
        let count = [0, 1, 2, 3, 5, 9][self.below(6)];
        Page::Entries((0..count).map(|_| self.entry(kind)).collect())
    }

    /// A cursor, raw: what a server takes for one is its own affair.
    pub(crate) fn cursor(&mut self) -> String {
        let text = format!("\"{}\"", "c".repeat(1_000));
        let all = [r#""next""#, r#""""#, "7", "false", r#"{"a":[1]}"#, r#""\u0070\"}{""#, &text];
        (*self.of(&all)).to_owned()
    }
}
