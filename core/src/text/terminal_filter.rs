//! Owns which control sequences of a program reach a terminal that it shares with its user: colours, moves of the cursor
//! and erasing do; all that sets, asks or sends something is printed as text. Driven by the stream of `afresh keep`. Never
//! holds back more than a character or a sequence that has not ended.

use super::cell;
use crate::limits::TERMINAL_SEQUENCE_BYTES_MAX;

/// Filters the bytes of a program, which may come in any pieces.
#[derive(Clone, Debug, Default)]
pub struct TerminalFilter {
    /// The beginning of a character or of a sequence.
    pending: Vec<u8>,
}

/// What is done with the first bytes.
enum Piece {
    Pass(usize),
    Text(usize),
    Unfinished,
}

impl TerminalFilter {
    /// The next bytes, as the terminal may have them.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.pending);
        input.extend_from_slice(bytes);
        let mut passed = Vec::with_capacity(input.len());
        let mut rest = input.as_slice();
        while !rest.is_empty() {
            let len = match first_piece(rest) {
                Piece::Pass(len) => {
                    passed.extend_from_slice(&rest[..len]);
                    len
                }
                Piece::Text(len) => {
                    push_text(&mut passed, &rest[..len]);
                    len
                }
                Piece::Unfinished => break,
            };
            rest = &rest[len..];
        }
        self.pending = rest.to_vec();
        passed
    }

    /// What was held back, as text: no more will come.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        push_text(&mut text, &std::mem::take(&mut self.pending));
        text
    }
}

fn push_text(passed: &mut Vec<u8>, bytes: &[u8]) {
    let text: String = String::from_utf8_lossy(bytes).chars().flat_map(|c| cell(c).0).collect();
    passed.extend_from_slice(text.as_bytes());
}

fn first_piece(rest: &[u8]) -> Piece {
    match rest[0] {
        0x1b => sequence(rest),
        byte if is_plain(byte) => {
            Piece::Pass(rest.iter().position(|byte| !is_plain(*byte)).unwrap_or(rest.len()))
        }
        ..0x80 => Piece::Text(1),
        _ => character(rest),
    }
}

/// What is printed, and controls that only move the cursor or ring.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t' | 0x07 | 0x08 | 0x0b | 0x0c)
}

/// A character beyond ASCII. The controls among them, and marks that turn the direction of writing, are replaced.
fn character(rest: &[u8]) -> Piece {
    match std::str::from_utf8(&rest[..rest.len().min(4)]) {
        Err(error) if error.valid_up_to() == 0 => {
            error.error_len().map_or(Piece::Unfinished, Piece::Text)
        }
        // Its first byte says how long it is.
        _ => Piece::Text(rest[0].leading_ones() as usize),
    }
}

/// An escape sequence. Of one that does not pass, the escape is printed, and then all that follows is text.
fn sequence(rest: &[u8]) -> Piece {
    match rest.get(1) {
        None => Piece::Unfinished,
        // Saves and restores the cursor, or moves it by a line.
        Some(b'7' | b'8' | b'D' | b'E' | b'M') => Piece::Pass(2),
        Some(b'[') => {
            let count = |from: usize, is: fn(&u8) -> bool| {
                rest[from..].iter().position(|byte| !is(byte)).unwrap_or(rest.len() - from)
            };
            let end = 2 + count(2, |byte| matches!(byte, 0x20..=0x3f));
            match rest.get(end) {
                None if end < TERMINAL_SEQUENCE_BYTES_MAX => Piece::Unfinished,
                Some(last)
                    if end < TERMINAL_SEQUENCE_BYTES_MAX && may_pass(&rest[2..end], *last) =>
                {
                    Piece::Pass(end + 1)
                }
                _ => Piece::Text(1),
            }
        }
        Some(_) => Piece::Text(1),
    }
}

/// Whether `ESC [ PARAMETERS LAST` is a colour, a move of the cursor, or erases or shifts what is on the screen.
fn may_pass(parameters: &[u8], last: u8) -> bool {
    let are_all = |more: &[u8]| {
        parameters.iter().all(|byte| byte.is_ascii_digit() || *byte == b';' || more.contains(byte))
    };
    match last {
        b'm' => are_all(b":"),
        // Not what has scrolled away.
        b'J' => matches!(parameters, b"" | b"0" | b"1" | b"2"),
        b'A'..=b'H'
        | b'K'
        | b'L'
        | b'M'
        | b'P'
        | b'X'
        | b'@'
        | b'a'
        | b'd'
        | b'e'
        | b'f'
        | b'`' => are_all(b""),
        b'S' | b'T' => parameters.iter().all(u8::is_ascii_digit),
        b's' | b'u' => parameters.is_empty(),
        // Hides and shows the cursor.
        b'h' | b'l' => parameters == b"?25",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What passes of a text, however it is cut.
    fn passed(bytes: &[u8]) -> String {
        let whole = |pieces: &[&[u8]]| {
            let mut filter = TerminalFilter::default();
            let mut passed = Vec::new();
            pieces.iter().for_each(|piece| passed.extend(filter.pass(piece)));
            passed.extend(filter.finish());
            String::from_utf8(passed).unwrap()
        };
        let at_once = whole(&[bytes]);
        for cut in 0..=bytes.len() {
            assert_eq!(whole(&[&bytes[..cut], &bytes[cut..]]), at_once, "cut at {cut}");
        }
        let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(whole(&bytewise), at_once);
        at_once
    }

    #[test]
    fn colours_and_moves_pass() {
        for text in [
            "plain\n",
            "12 %\r13 %\r\n",
            "a\tb\u{8}\u{7}",
            "ä 漢 ✅ 👍🏽 e\u{301}",
            "\u{1b}[31;1mred\u{1b}[0m \u{1b}[38:2::1:2:3mx\u{1b}[m",
            "\u{1b}[2K\u{1b}[1A\u{1b}[G\u{1b}[10;20H\u{1b}[2J\u{1b}[s\u{1b}[u\u{1b}7\u{1b}8\u{1b}M",
            "\u{1b}[?25lhidden\u{1b}[?25h",
        ] {
            assert_eq!(passed(text.as_bytes()), text);
        }
    }

    #[test]
    fn what_sets_asks_or_sends_is_printed() {
        for (text, wanted) in [
            ("\u{1b}]0;title\u{7}", "␛]0;title\u{7}"),
            ("\u{1b}]52;c;aGk=\u{1b}\\", "␛]52;c;aGk=␛\\"),
            ("\u{1b}]8;;http://x\u{1b}\\", "␛]8;;http://x␛\\"),
            ("\u{1b}Pq\u{1b}\\", "␛Pq␛\\"),
            ("\u{1b}_x\u{1b}^y\u{1b}Xz\u{1b}kt", "␛_x␛^y␛Xz␛kt"),
            ("\u{1b}[6n\u{1b}[c\u{1b}[>c\u{1b}[21t\u{1b}[5i", "␛[6n␛[c␛[>c␛[21t␛[5i"),
            ("\u{1b}[?1049h\u{1b}[?2004h\u{1b}[3J\u{1b}[>4;1m", "␛[?1049h␛[?2004h␛[3J␛[>4;1m"),
            ("\u{1b}[1 q\u{1b}[!p\u{1b}[1;2r\u{1b}[1;5;1;1;1T", "␛[1 q␛[!p␛[1;2r␛[1;5;1;1;1T"),
            ("\u{1b}c\u{1b}(0\u{1b}#8\u{1b}=", "␛c␛(0␛#8␛="),
            ("\u{1b}\u{1b}[31m\u{1b}[3\u{1b}[0m", "␛\u{1b}[31m␛[3\u{1b}[0m"),
            ("\u{1b}[31\n\u{1b}[\u{1b}", "␛[31\n␛[␛"),
            ("\0\u{5}\u{e}\u{f}\u{18}\u{7f}", "␀␅␎␏␘␡"),
            ("\u{9b}2J\u{9d}0;x\u{9c}", "�2J�0;x�"),
            ("a\u{202e}b\u{2066}c\u{200f}\u{e0041}", "a�b�c��"),
        ] {
            assert_eq!(passed(text.as_bytes()), wanted, "{text:?}");
        }
        assert_eq!(passed(b"\xff\x9b2J\xc3"), "��2J�");
    }

    #[test]
    fn a_sequence_that_does_not_end_is_not_held_back_for_ever() {
        let mut filter = TerminalFilter::default();
        let endless = [b"\x1b[".as_slice(), &[b'1'; 4 * TERMINAL_SEQUENCE_BYTES_MAX]].concat();
        assert!(filter.pass(&endless).starts_with("␛[1".as_bytes()));
        assert!(filter.finish().is_empty());
    }
}
