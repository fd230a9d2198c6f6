//! No text, however broken, is too much.

use super::super::*;
use super::mistakes::{messages, read_bytes};
use crate::random::Random;
use crate::report::Origin;

/// Pieces that mean something, in places where they do not belong.
const PIECES: [&str; 36] = [
    "#",
    "## ",
    "# Phase: X",
    "\n## Phase 2: Y\n",
    "\n## Phases\n",
    "### Gates\n",
    "- ",
    "* ",
    "1. ",
    "```",
    "\n```sh\n",
    "~~~",
    "`",
    "**",
    "_",
    "<!--",
    "-->",
    "[",
    "](",
    "](a.md)",
    "[A](a.md)",
    "\n- [A](a.md)\n",
    "Gate",
    "\n- Gates:\n",
    "\n- Depends on: ",
    "Store, Page",
    ":",
    "(",
    ")",
    "\r\n",
    "\n\n",
    "\t",
    "    ",
    "é漢\u{301}",
    "\u{202e}\u{1b}[2J",
    "\\",
];

fn mutated(random: &mut Random, seed: &str) -> Vec<u8> {
    let mut text: Vec<char> = seed.chars().collect();
    let mut below = |max: usize| (random.bits() % (max as u64 + 1)) as usize;
    for _ in 0..=below(8) {
        let (from, to) = (below(text.len()), below(text.len()));
        let (from, to) = (from.min(to), from.max(to));
        match below(5) {
            0 => drop(text.drain(from..to.min(from + 40))),
            1 => text.truncate(to),
            2 => {
                let copy: Vec<char> = text[from..to.min(from + 200)].to_vec();
                let at = below(text.len());
                text.splice(at..at, copy);
            }
            _ => {
                let piece = PIECES[below(PIECES.len() - 1)];
                text.splice(from..from, piece.chars());
            }
        }
    }
    let mut bytes = text.into_iter().collect::<String>().into_bytes();
    if below(20) == 0 {
        let at = below(bytes.len());
        bytes.insert(at, 0xff);
    }
    bytes
}

#[test]
fn no_text_is_too_much() {
    const FILLING_BYTES: usize = 64 * 1024;
    const MASTER: &str = "# All\n\n## Phases\n\n1. [Store](a.md)\n   - Gate: a\n2. [Page](f.md)\n\nDone.\n\n\
                          ## Phase 3: Manual\n\nWrite.\n\nGates:\n```sh\nmake \\\n  all\n```\n\
                          - Depends on:\n  - Store\n  - Page\n";
    let mut sounds = 0;
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let text = if seed % 2 == 0 { EXAMPLE } else { MASTER };
        let bytes = mutated(&mut random, text);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let read = read_bytes(&bytes);
        if let Ok(sound) = &read {
            sounds += 1;
            let phases = &sound.plan.phases;
            for (at, phase) in phases.iter().enumerate() {
                assert!(!phase.task.is_empty() && !phase.name.is_empty(), "seed {seed}");
                for need in &phase.depends_on {
                    assert!(phases[..at].iter().any(|p| p.name == *need), "seed {seed}");
                }
            }
        }
        for error in messages(read) {
            let Origin::File { path, line, column } = &error.origin else { panic!("in a file") };
            let shown = error.to_string();
            assert!(!shown.contains('\u{1b}'), "seed {seed}: {shown}");
            if path == "PLAN.md" {
                let row = text.split('\n').nth(line - 1);
                let row = row.unwrap_or_else(|| panic!("seed {seed}: no line {line}"));
                assert!(*column <= row.chars().count() + 1, "seed {seed}: {shown}");
            }
        }
    }
    assert!((100..1_900).contains(&sounds), "some of both: {sounds}");
    // Nothing that is said over and over takes long.
    for piece in [
        "[](",
        "](",
        "`` ` ",
        "- Gate: a\n",
        "- Gats: a\n",
        "Gates:\n\n",
        "## Phase: A\n",
        "a, ",
        "(",
        "* ",
    ] {
        let filling = piece.repeat(FILLING_BYTES / piece.len());
        for head in [
            "",
            "## Phases\n- [A](a.md)\n- ",
            "## Phase: A\n- Depends on: ",
            "## Phase: A\n- Gate: `",
        ] {
            messages(read_bytes(format!("{head}{filling}").as_bytes()));
        }
    }
}
