//! Sessions that began in a gateway before this one.

use super::*;

#[test]
fn a_session_of_a_gateway_before_goes_on() {
    let mut world = World::new(|_| {});
    let name = format!("{}.claim.signature", SessionId([5; 16]));
    let listen =
        |last_event: Option<&str>| RequestKind::Get { last_event: last_event.map(str::to_owned) };
    assert_eq!(refused(&world.ask_as(0, Some(&name), listen(None))), Some(404), "it is not ours");
    let done =
        world.resume_as(0, Some(&name), Some(r#"{"protocolVersion":"x"}"#), listen(Some("7-3")));
    let client = ClientId(1);
    let resumed = Input::Resumed { client, params: br#"{"protocolVersion":"x"}"#.to_vec() };
    assert!(
        matches!(&done[0], FrontEffect::Hub(Input::Joined { client: ClientId(1), .. })),
        "{done:?}"
    );
    assert_eq!(done[1], FrontEffect::Hub(resumed), "nothing of it comes before");
    assert!(done.iter().any(|effect| matches!(effect, FrontEffect::Begin { session: None, .. })));
    // From now on it is known, and of its token.
    assert_eq!(refused(&world.ask_as(1, Some(&name), RequestKind::Delete)), Some(404));
    let stolen = world.resume_as(1, Some(&name), Some("{}"), RequestKind::Delete);
    assert_eq!(refused(&stolen), Some(404));
    let ended = world.ask_as(0, Some(&name), RequestKind::Delete);
    assert!(ended.contains(&FrontEffect::SessionEnded(SessionId([5; 16]))), "{ended:?}");
    // The sessions of a gateway that ends go on in the next one.
    world.resume_as(0, Some(&format!("{}.x.y", SessionId([6; 16]))), Some("{}"), listen(None));
    let closed = world.front.handle(world.now, FrontInput::Close);
    assert!(!closed.iter().any(|it| matches!(it, FrontEffect::SessionEnded(_))), "{closed:?}");
}

/// Ids that are not the one that was issued: a part of it is changed, is missing, or is there besides.
fn others_than(name: &str) -> Vec<String> {
    let (rest, last) = name.split_at(name.len() - 1);
    let other = if last == "0" { "1" } else { "0" };
    vec![
        format!("{rest}{other}"),
        name.replacen('.', ".x", 1),
        name[..32].to_owned(),
        rest.to_owned(),
        format!("{name}A"),
        format!("{name}{}", "A".repeat(2_000)),
        format!("{name}.more"),
        format!("0{}", &name[1..]),
        name.to_uppercase(),
    ]
}

#[test]
fn an_id_counts_only_as_a_whole_also_where_its_session_is_known() {
    let listen = || RequestKind::Get { last_event: None };
    let name = format!("{}.claim.signature", SessionId([0xa5; 16]));
    for is_resumed in [true, false] {
        let mut world = World::new(|_| {});
        if is_resumed {
            world.resume_as(0, Some(&name), Some("{}"), listen());
        } else {
            let (line, post) = (Vec::new(), PostBody::Initialize(id("0")));
            let begins = RequestKind::Post { line, post, new: SessionId([0xa5; 16]) };
            world.issued = Some(name.clone());
            world.ask_as(0, None, begins);
            world.tell(1, r#"{"id":0,"result":{}}"#, Some("0"));
        }
        for other in others_than(&name) {
            for ask in [listen(), RequestKind::Delete] {
                assert_eq!(refused(&world.ask_as(0, Some(&other), ask)), Some(404), "{other}");
            }
            let post = PostBody::one(vec![id("1")]);
            assert_eq!(refused(&world.post(Some(&other), post)), Some(404), "{other}");
        }
        let heard = world.ask_as(0, Some(&name), listen());
        assert!(matches!(heard[..], [.., FrontEffect::Write { .. }]), "{heard:?}");
    }
}

/// A session that goes on, begun by its first `GET`, whose connection is gone.
fn resumed(world: &mut World) -> String {
    let name = format!("{}.claim.signature", SessionId([5; 16]));
    let primed = world.resume_as(0, Some(&name), Some("{}"), RequestKind::Get { last_event: None });
    let exchange = world.exchange;
    assert_eq!(written(&primed, exchange), "id: 0-1000\nretry: 1000\ndata: \n\n");
    world.gone(exchange);
    name
}

#[test]
fn ids_of_events_of_the_gateway_before_skip_no_event() {
    for old in ["0-0", "0-1", "0-2", "0-999", "0-5000", "7-3", "x"] {
        let mut world = World::new(|_| {});
        let name = resumed(&mut world);
        world.tell(1, NOTE, None);
        world.tell(1, NOTE, None);
        let heard = world.get(&name, Some(old));
        let both = [event_text("0-1001", NOTE), event_text("0-1002", NOTE)].concat();
        let text = written(&heard, world.exchange);
        assert!(text.ends_with(&both), "{old}: {text}");
        // Its own ids count as those of any session.
        world.gone(world.exchange);
        let heard = world.get(&name, Some("0-1001"));
        assert_eq!(written(&heard, world.exchange), event_text("0-1002", NOTE));
    }
}

#[test]
fn ids_of_events_of_the_gateway_before_take_over_no_stream() {
    let mut world = World::new(|_| {});
    let name = resumed(&mut world);
    world.post(Some(&name), PostBody::one(vec![id("1")]));
    let post = world.exchange;
    assert!(written(&world.tell(1, NOTE, Some("1")), post).contains(&event_text("1001-1", NOTE)));
    for old in ["1-1", "2-0", "2-1", "3-1", "1001-2"] {
        let heard = world.get(&name, Some(old));
        assert!(!heard.contains(&FrontEffect::End { exchange: HttpExchange(post) }), "{old}");
        assert!(written(&heard, world.exchange).starts_with("id: 0-1000"), "{old}");
    }
    let answer = r#"{"id":1,"result":{}}"#;
    assert_eq!(written(&world.tell(1, answer, Some("1")), post), event_text("1001-2", answer));
}
