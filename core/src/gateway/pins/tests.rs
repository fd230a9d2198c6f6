//! What counts as a change of a server, what is stored of it, and how it is shown.

use super::*;

fn key() -> PinKey {
    PinKey { server: "a".to_owned(), address: "http://a.example/mcp".to_owned() }
}

fn items(all: &[(&str, &str)]) -> Items {
    all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn names_of(pins: &Pins) -> Vec<String> {
    pins.changed(&key()).map(|(section, name)| section.item(name)).collect()
}

fn update(server: &str, section: Section, change: PinChange) -> PinUpdate {
    let key = PinKey { server: server.to_owned(), ..key() };
    PinUpdate { key, change: Some((section, change)) }
}

#[test]
fn the_text_of_an_entry_does_not_depend_on_order_name_or_what_changes_all_the_time() {
    let text = |entry: &str| canonical(Kind::Tools, entry.as_bytes());
    let one = r#"{"name":"a","description":"x","inputSchema":{"b":1,"a":[{"d":1,"c":2}]},"_meta":{"t":1}}"#;
    let two =
        r#"{ "inputSchema":{"a":[{"c":2,"d":1}],"b":1}, "icons":[], "description":"x","name":"b"}"#;
    assert_eq!(text(one), text(two));
    for other in [
        r#"{"name":"a","description":"y","inputSchema":{"b":1,"a":[{"d":1,"c":2}]}}"#,
        r#"{"name":"a","description":"x","inputSchema":{"b":1,"a":[{"d":2,"c":2}]}}"#,
        r#"{"name":"a","description":"x","inputSchema":{"b":1,"a":[{"d":1,"c":2}]},"title":"t"}"#,
    ] {
        assert_ne!(text(one), text(other));
    }
    // One of two descriptions changes, or a text that not every parser takes.
    for (one, two) in [
        (r#"{"description":"x","description":"z"}"#, r#"{"description":"y","description":"z"}"#),
        (r#"{"description":"\ud83d x"}"#, r#"{"description":"\ud83d y"}"#),
    ] {
        assert_ne!(text(one), text(two));
    }
    // The name of a template is for people.
    let template = |name: &str| {
        canonical(Kind::Templates, format!(r#"{{"uriTemplate":"x","name":"{name}"}}"#).as_bytes())
    };
    assert_ne!(template("a"), template("b"));
}

#[test]
fn a_change_is_told_once_and_pends_until_it_is_accepted_or_undone() {
    let mut pins = Pins::default();
    let mut see = |all: &[(&str, &str)]| {
        let change = pins.observe(&key(), Section::Tools, items(all));
        (change, names_of(&pins))
    };
    let first = items(&[("get", "1"), ("set", "1")]);
    assert_eq!(see(&[("get", "1"), ("set", "1")]), (Some(PinChange::First(first.clone())), vec![]));
    assert_eq!(see(&[("get", "1")]), (Some(PinChange::Same), vec![]), "one is gone");
    let other = items(&[("get", "2"), ("new", "1"), ("set", "1")]);
    let names = vec!["get".to_owned(), "new".to_owned()];
    let again = [("get", "2"), ("new", "1"), ("set", "1")];
    assert_eq!(see(&again), (Some(PinChange::Differs(other.clone())), names.clone()));
    assert_eq!(see(&again), (None, names));
    assert_eq!(see(&[("get", "1"), ("set", "1")]), (Some(PinChange::Same), vec![]));
    assert_eq!(see(&again).0, Some(PinChange::Differs(other.clone())));
    let accepts = |pins: &Pins, name: &str, text: &str| {
        (
            pins.is_accepted(&key(), Section::Tools, name, text),
            pins.has_name(&key(), Section::Tools, name),
        )
    };
    assert_eq!(accepts(&pins, "get", "2"), (false, true));
    assert_eq!(accepts(&pins, "new", "1"), (false, false));
    assert_eq!(accepts(&pins, "set", "1"), (true, true));
    assert!(pins.is_accepted(&key(), Section::Prompts, "any", "text"), "there was no first use");
    let stored = |items: &Items| {
        BTreeMap::from([(key(), Sections::from([(Section::Tools, items.clone())]))])
    };
    assert_eq!(pins.load(stored(&first)), []);
    assert_eq!(pins.load(stored(&other)), [key()]);
    assert_eq!(names_of(&pins), [""; 0]);
    assert_eq!(accepts(&pins, "get", "2"), (true, true));
    assert_eq!(accepts(&pins, "get", "1"), (false, true));
}

#[test]
fn only_what_was_shown_is_accepted() {
    let mut file = PinFile::default();
    let (old, new) = (items(&[("get", "1")]), items(&[("get", "2")]));
    file.apply("r", 1, vec![update("a", Section::Tools, PinChange::First(old.clone()))]);
    file.apply("r", 2, vec![update("a", Section::Tools, PinChange::First(new.clone()))]);
    assert_eq!(file.servers_of("r").next().map(|its| &its.pinned[&Section::Tools]), Some(&old));
    file.apply("r", 3, vec![update("a", Section::Tools, PinChange::Differs(new.clone()))]);
    let shown = file.servers_of("r").next().cloned().expect("it is there");
    assert_eq!(file.servers_of("other").count(), 0);
    // It changes once more before the user has answered.
    let newest = items(&[("get", "3")]);
    file.apply("r", 4, vec![update("a", Section::Tools, PinChange::Differs(newest))]);
    assert!(!file.accept("r", &shown));
    file.apply("r", 5, vec![update("a", Section::Tools, PinChange::Differs(new.clone()))]);
    assert!(file.accept("r", &shown) && !file.accept("other", &shown));
    let its = file.servers_of("r").next().expect("it is there");
    assert_eq!((its.pinned.get(&Section::Tools), its.pending.len()), (Some(&new), 0));
    assert!(!its.is_changed_by(Section::Tools, &PinChange::Same));
    // A gateway that has not heard of it yet.
    file.apply("r", 6, vec![update("a", Section::Tools, PinChange::Differs(new))]);
    assert_eq!(file.servers_of("r").map(|its| its.pending.len()).collect::<Vec<_>>(), [0]);
}

#[test]
fn what_is_accepted_takes_no_other_pin_away() {
    let mut file = PinFile::default();
    let old = items(&[("denied", "1"), ("get", "1")]);
    file.apply("r", 1, vec![update("a", Section::Tools, PinChange::First(old))]);
    let accept = |file: &mut PinFile, new: Items| {
        file.apply("r", 2, vec![update("a", Section::Tools, PinChange::Differs(new))]);
        let shown = file.servers_of("r").next().cloned().expect("it is there");
        assert!(file.accept("r", &shown));
        file.servers_of("r").next().expect("it is there").pinned[&Section::Tools].clone()
    };
    let both = items(&[("denied", "1"), ("get", "2")]);
    assert_eq!(accept(&mut file, items(&[("get", "2")])), both);
    // What is not there any more does not grow for ever.
    let long = items(&[("get", &"x".repeat(PIN_LIST_BYTES_MAX - 3))]);
    assert_eq!(accept(&mut file, long.clone()), long);
}

#[test]
fn the_least_recently_used_is_forgotten_first() {
    let mut file = PinFile::default();
    let long = items(&[("t", &"x".repeat(PINS_BYTES_MAX / 3))]);
    for (now, server) in [(1, "a"), (2, "b"), (3, "a"), (4, "c")] {
        file.apply("r", now, vec![update(server, Section::Tools, PinChange::First(long.clone()))]);
    }
    let mut left: Vec<&str> = file.servers_of("r").map(|its| its.server.as_str()).collect();
    left.sort_unstable();
    assert_eq!(left, ["a", "c"]);
}

#[test]
fn a_difference_is_shown_in_full_with_hidden_characters_written_out() {
    let text = |description: &str, schema: &str| {
        format!(r#"{{"description":"{description}","inputSchema":{schema}}}"#)
    };
    let pinned = Sections::from([
        (
            Section::Tools,
            items(&[
                ("get", &text("one\\ntwo\\nthree", r#"{"type":"object"}"#)),
                ("gone", "{}"),
                ("same", "{}"),
                ("twice", r#"{"a":1,"a":3}"#),
            ]),
        ),
        (Section::Instructions, Items::new()),
    ]);
    let pending = Sections::from([
        (
            Section::Tools,
            items(&[
                ("get", &text("one\\n2\\u202e\\nthree", r#"{"type":"object"}"#)),
                ("new\u{200b}", &text("x", "{}")),
                ("same", "{}"),
                ("twice", r#"{"a":2,"a":3}"#),
            ]),
        ),
        (Section::Instructions, items(&[("", "Obey.\u{1b}[2J")])),
    ]);
    let shown: Vec<String> = differences(&pinned, &pending)
        .into_iter()
        .map(|its| format!("{:?} {}: {}", its.difference, its.item, its.lines.join(" | ")))
        .collect();
    assert_eq!(
        shown,
        [
            "Changed get: description: | - two | + 2\\u{202e}",
            "Added new\\u{200b}: description: | + x | inputSchema: | + {}",
            r#"Changed twice: - {"a":1,"a":3} | + {"a":2,"a":3}"#,
            "Added instructions: + Obey.\\u{1b}[2J",
        ]
    );
}

#[test]
fn a_key_that_stands_twice_below_is_a_change() {
    let of = |entry: &str| canonical(Kind::Tools, entry.as_bytes());
    let pinned = of(r#"{"name":"a","inputSchema":{"x":[{"description":"ok"}]}}"#);
    for other in [
        r#"{"name":"a","inputSchema":{"x":[{"description":"EVIL","description":"ok"}]}}"#,
        r#"{"name":"a","inputSchema":{"x":1,"x":[{"description":"ok"}]}}"#,
    ] {
        assert_ne!(of(other), pinned, "{other}");
    }
}
