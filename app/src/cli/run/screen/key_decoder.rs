//! Decodes keys out of the bytes that a terminal sends. crossterm's own reader is notified only once of waiting bytes,
//! and takes no more than its buffer holds: after a burst it would leave the rest unread.

use std::time::Duration;

use afresh_core::limits::{KEY_BYTES_GAP_MAX, PASTE_BYTES_MAX, PASTE_GAP_MAX};
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

/// Begins every key that is no plain character.
const ESCAPE: u8 = 0x1b;
/// Stands before and behind what is pasted.
const PASTE_BEGINS: &[u8] = b"\x1b[200~";
const PASTE_ENDS: &[u8] = b"\x1b[201~";
/// No key sends more.
const SEQUENCE_BYTES_MAX: usize = 32;

/// Bytes that are no whole key yet.
#[derive(Debug, Default)]
pub(super) struct KeyDecoder {
    rest: Vec<u8>,
}

/// How many bytes the next key is, and what it means here, if anything; none where it is not whole yet.
type Decoded = Option<(usize, Option<Event>)>;

impl KeyDecoder {
    /// Takes what came, and returns what is whole.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.rest.extend_from_slice(bytes);
        let (mut events, mut begin) = (Vec::new(), 0);
        while let Some((length, event)) = self.rest.get(begin..).and_then(next) {
            events.extend(event);
            begin += length;
        }
        self.rest.drain(..begin);
        if self.rest.starts_with(PASTE_BEGINS) && self.rest.len() > PASTE_BYTES_MAX {
            // Dropped bytes need not be kept, but the end may be there in part.
            self.rest.drain(PASTE_BYTES_MAX / 2..self.rest.len() - PASTE_ENDS.len());
        }
        events
    }

    /// How long to wait for more; none where nothing is open. The key Esc sends the first byte of what other keys
    /// send, and what is pasted may be long on its way, and must not become keys.
    pub(super) fn patience(&self) -> Option<Duration> {
        let wait = match self.rest.starts_with(PASTE_BEGINS) {
            true => PASTE_GAP_MAX,
            false => KEY_BYTES_GAP_MAX,
        };
        (!self.rest.is_empty()).then_some(wait)
    }

    /// Nothing has followed. The end of a paste can be lost with a connection, and keys must be keys again.
    pub(super) fn decide(&mut self) -> Option<Event> {
        let rest = std::mem::take(&mut self.rest);
        if let Some(text) = rest.strip_prefix(PASTE_BEGINS) {
            return Some(Event::Paste(String::from_utf8_lossy(text).into_owned()));
        }
        (rest == [ESCAPE]).then(|| plain_key(KeyCode::Esc))
    }
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
    Event::Key(KeyEvent::new(code, modifiers))
}

fn plain_key(code: KeyCode) -> Event {
    key(code, KeyModifiers::NONE)
}

fn next(bytes: &[u8]) -> Decoded {
    match bytes {
        [] | [ESCAPE] | [ESCAPE, b'O'] => None,
        [ESCAPE, ESCAPE, ..] => Some((1, Some(plain_key(KeyCode::Esc)))),
        [ESCAPE, b'O', last, ..] => Some((3, by_letter(*last).map(plain_key))),
        _ if bytes.starts_with(PASTE_BEGINS) => pasted(bytes),
        [ESCAPE, b'[', rest @ ..] => sequence(rest),
        [ESCAPE, rest @ ..] => {
            let (length, event) = character(rest)?;
            let pressed = event.and_then(|event| event.as_key_event());
            let event =
                pressed.map(|pressed| key(pressed.code, pressed.modifiers | KeyModifiers::ALT));
            Some((length + 1, event))
        }
        _ => character(bytes),
    }
}

fn pasted(bytes: &[u8]) -> Decoded {
    let inside = &bytes[PASTE_BEGINS.len()..];
    let length = inside.windows(PASTE_ENDS.len()).position(|part| part == PASTE_ENDS)?;
    let text = String::from_utf8_lossy(&inside[..length]).into_owned();
    Some((PASTE_BEGINS.len() + length + PASTE_ENDS.len(), Some(Event::Paste(text))))
}

/// A key that sends numbers and a last letter, behind `ESC [`.
fn sequence(rest: &[u8]) -> Decoded {
    // Linux's own console sends a second bracket for F1.
    if let [b'[', rest @ ..] = rest {
        let letter = rest.first()?;
        return Some((4, (*letter == b'A').then(|| plain_key(KeyCode::F(1)))));
    }
    let Some(length) = rest.iter().position(|byte| !(0x20..0x40).contains(byte)) else {
        return (rest.len() > SEQUENCE_BYTES_MAX).then_some((rest.len() + 2, None));
    };
    if !(0x40..0x7f).contains(&rest[length]) {
        // It was broken off by another key.
        return Some((length + 2, None));
    }
    let numbers = String::from_utf8_lossy(&rest[..length]).into_owned();
    let mut numbers = numbers.split(';').map(|number| number.parse::<u8>().unwrap_or(0));
    let first = numbers.next().unwrap_or(0);
    let code = match rest[length] {
        b'~' => by_number(first),
        letter => by_letter(letter),
    };
    let held = numbers.next().unwrap_or(0).saturating_sub(1);
    let of = |bit: u8, modifier| if held & bit == 0 { KeyModifiers::NONE } else { modifier };
    let modifiers =
        of(1, KeyModifiers::SHIFT) | of(2, KeyModifiers::ALT) | of(4, KeyModifiers::CONTROL);
    Some((length + 3, code.map(|code| key(code, modifiers))))
}

const fn by_letter(letter: u8) -> Option<KeyCode> {
    Some(match letter {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'F' => KeyCode::End,
        b'H' => KeyCode::Home,
        b'P' => KeyCode::F(1),
        _ => return None,
    })
}

const fn by_number(number: u8) -> Option<KeyCode> {
    Some(match number {
        1 | 7 => KeyCode::Home,
        3 => KeyCode::Delete,
        4 | 8 => KeyCode::End,
        5 => KeyCode::PageUp,
        6 => KeyCode::PageDown,
        11 => KeyCode::F(1),
        _ => return None,
    })
}

fn character(bytes: &[u8]) -> Decoded {
    let length = match bytes.first()? {
        b'\r' => return Some((1, Some(plain_key(KeyCode::Enter)))),
        b'\t' => return Some((1, Some(plain_key(KeyCode::Tab)))),
        0x7f => return Some((1, Some(plain_key(KeyCode::Backspace)))),
        byte @ 0x01..=0x1a => {
            let letter = char::from(byte - 1 + b'a');
            return Some((1, Some(key(KeyCode::Char(letter), KeyModifiers::CONTROL))));
        }
        0x20..=0x7e => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Some((1, None)),
    };
    let Some(whole) = bytes.get(..length) else {
        // What is no text is passed over as soon as that is seen.
        let is_text = bytes[1..].iter().all(|byte| (0x80..0xc0).contains(byte));
        return (!is_text).then_some((1, None));
    };
    let c = std::str::from_utf8(whole).ok().and_then(|text| text.chars().next());
    Some(c.map_or((1, None), |c| (length, Some(plain_key(KeyCode::Char(c))))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(code: KeyCode) -> Event {
        key(code, KeyModifiers::NONE)
    }

    #[test]
    fn keys_are_told_apart_however_their_bytes_come() {
        let bytes = "a\u{3}\r\u{7f}漢\u{1b}[A\u{1b}OH\u{1b}[3~\u{1b}[1;5C\u{1b}[200~q\u{1b}[Ay\u{1b}[201~\u{1b}r\u{1b}[[A\u{1b}[99z!";
        let wanted = [
            plain(KeyCode::Char('a')),
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            plain(KeyCode::Enter),
            plain(KeyCode::Backspace),
            plain(KeyCode::Char('漢')),
            plain(KeyCode::Up),
            plain(KeyCode::Home),
            plain(KeyCode::Delete),
            key(KeyCode::Right, KeyModifiers::CONTROL),
            Event::Paste("q\u{1b}[Ay".to_owned()),
            key(KeyCode::Char('r'), KeyModifiers::ALT),
            plain(KeyCode::F(1)),
            plain(KeyCode::Char('!')),
        ];
        assert_eq!(KeyDecoder::default().take(bytes.as_bytes()), wanted);
        let mut typed = KeyDecoder::default();
        let one_by_one: Vec<Event> = bytes.bytes().flat_map(|byte| typed.take(&[byte])).collect();
        assert_eq!(one_by_one, wanted);
    }

    #[test]
    fn esc_is_a_key_where_nothing_follows() {
        let mut typed = KeyDecoder::default();
        assert!(typed.take(b"\x1b").is_empty());
        assert_eq!(typed.patience(), Some(KEY_BYTES_GAP_MAX));
        assert_eq!(typed.decide(), Some(plain(KeyCode::Esc)));
        assert_eq!(typed.patience(), None);
        assert!(typed.take(b"\x1b[200~q").is_empty());
        assert_eq!(typed.patience(), Some(PASTE_GAP_MAX));
        // Nobody says how much is pasted.
        for _ in 0..100 {
            assert!(typed.take(&[b'q'; 4_096]).is_empty());
        }
        assert!(typed.rest.len() <= PASTE_BYTES_MAX);
        assert!(typed.take(b"q\x1b[20").is_empty());
        assert!(
            matches!(&typed.take(b"1~y")[..], [Event::Paste(_), last] if *last == plain(KeyCode::Char('y')))
        );
        assert!(typed.take(b"\x1b[200~lost").is_empty());
        assert_eq!(typed.decide(), Some(Event::Paste("lost".to_owned())), "its end never came");
        assert_eq!(typed.take(b"y"), [plain(KeyCode::Char('y'))]);
    }

    #[test]
    fn what_no_key_sends_hides_none() {
        let mut typed = KeyDecoder::default();
        let strange = [&b"\xff\xe6\x28\x1b["[..], &[b'1'; 40], b"\x1b[1\x03"].concat();
        let last = typed.take(&strange).pop();
        assert_eq!(last, Some(key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert_eq!(typed.patience(), None);
    }
}
