//! Units and agents as they are written, and as they are found again.

use super::*;

fn installation(manager: Manager) -> Installation {
    Installation {
        manager,
        name: "shop".to_owned(),
        program: "/usr/local/bin/afresh".to_owned(),
        workspace: "/home/ann/shop".to_owned(),
        path: Some("/usr/local/bin:/usr/bin:/bin".to_owned()),
    }
}

#[test]
fn the_texts_are_the_golden_ones() {
    let unit = installation(Manager::Systemd);
    assert_eq!(unit.file_name(), "afresh-shop.service");
    assert_eq!(unit.text().unwrap(), include_str!("golden/afresh-shop.service"));
    let agent = installation(Manager::Launchd);
    assert_eq!(agent.file_name(), "afresh.shop.plist");
    assert_eq!(agent.text().unwrap(), include_str!("golden/afresh.shop.plist"));
}

#[test]
fn whatever_means_something_to_systemd_is_escaped() {
    let hostile = Installation {
        program: "/opt/my $tools/50%/afresh".to_owned(),
        workspace: "/home/ann/50% \"off\" $HOME 'x' ü".to_owned(),
        path: Some("/a b:/50%:/q\"q:/b\\s:/$HOME".to_owned()),
        ..installation(Manager::Systemd)
    };
    let text = hostile.text().unwrap();
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    assert_eq!(line("ExecStart="), r#"ExecStart=:"/opt/my $tools/50%%/afresh" up"#);
    assert_eq!(line("Working"), r#"WorkingDirectory=/home/ann/50%% "off" $HOME 'x' ü"#);
    assert_eq!(line("Env"), r#"Environment="PATH=/a b:/50%%:/q\"q:/b\\s:/$HOME""#);
    for program in ["/a\"b/afresh", "/a'b/afresh", "/a\\b/afresh", "/a\nb/afresh"] {
        let it = Installation { program: program.to_owned(), ..hostile.clone() };
        assert!(it.text().unwrap_err().to_string().contains("systemd does not take"));
    }
    for workspace in ["/a ", "/a\nExecStart=/bin/evil", "/a\\"] {
        let it = Installation { workspace: workspace.to_owned(), ..hostile.clone() };
        assert!(it.text().unwrap_err().to_string().contains("cannot be written"));
    }
}

#[test]
fn a_property_list_stays_well_formed() {
    let hostile = Installation {
        program: "/opt/<a> & b/afresh".to_owned(),
        workspace: "/home/ann/</string><string>x".to_owned(),
        path: Some("/a&b:<!-- -->:]]>".to_owned()),
        ..installation(Manager::Launchd)
    };
    let text = hostile.text().unwrap();
    assert_well_formed(&text);
    assert_eq!(text.matches("<string>").count(), 5);
    let none = Installation { path: None, ..hostile.clone() };
    assert_well_formed(&none.text().unwrap());
    let control = Installation { workspace: "/a\u{1}".to_owned(), ..hostile };
    assert!(control.text().is_err());
}

/// Every tag that opens is closed, in order, and no text has what would be one.
fn assert_well_formed(xml: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml;
    while let Some((text, tag)) = rest.split_once('<') {
        assert!(!text.contains('>'), "{text}");
        for entity in text.split('&').skip(1) {
            let known = ["amp;", "lt;", "gt;"];
            assert!(known.iter().any(|name| entity.starts_with(name)), "{entity}");
        }
        let (tag, after) = tag.split_once('>').expect("a tag ends");
        rest = after;
        match tag {
            tag if tag.starts_with("!--") => {
                let inside = tag.strip_prefix("!--").and_then(|tag| tag.strip_suffix("--"));
                assert!(!inside.expect("a comment ends").contains("--"), "{tag}");
            }
            tag if tag.starts_with(['?', '!']) || tag.ends_with('/') => {}
            tag => match tag.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop(), Some(closed)),
                None => open.push(tag.split(' ').next().unwrap()),
            },
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn what_somebody_has_changed_is_known() {
    for manager in [Manager::Systemd, Manager::Launchd] {
        let it = installation(manager);
        let text = it.text().unwrap();
        let there = |text: &str| standing(Some(text.as_bytes()), &it.text().unwrap());
        assert_eq!(standing(None, &text), Standing::Free);
        assert_eq!(there(&text), Standing::Same);
        let older = Installation { program: "/opt/afresh".to_owned(), ..it.clone() };
        assert_eq!(there(&older.text().unwrap()), Standing::Older);
        let elsewhere = Installation { workspace: "/other/shop".to_owned(), ..it.clone() };
        assert_eq!(there(&elsewhere.text().unwrap()), Standing::Elsewhere);
        assert_eq!(there(&text.replace("90", "91")), Standing::Changed);
        assert_eq!(there(&format!("{text}# mine\n")), Standing::Changed);
        assert_eq!(there(&format!("# mine\n{text}")), Standing::Changed);
        assert_eq!(there("[Service]\nExecStart=/bin/true\n"), Standing::Foreign);
        assert_eq!(there(""), Standing::Foreign);
        assert_eq!(standing(Some(b"\xff"), &text), Standing::Foreign);
        // Every single change of a byte is seen.
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let found = standing(Some(&bytes), &text);
            assert!(matches!(found, Standing::Changed | Standing::Foreign), "{at}: {found:?}");
        }
    }
}

#[test]
fn every_folder_has_a_name_for_the_manager() {
    for (folder, name) in [
        ("shop", "shop"),
        ("my shop", "my-shop"),
        ("..", "workspace"),
        ("", "workspace"),
        ("a/b\n%i@x", "a-b--i-x"),
        ("ü", "workspace"),
        (&"x".repeat(500), &"x".repeat(64)),
    ] {
        assert_eq!(name_of(folder), name, "{folder}");
    }
}
