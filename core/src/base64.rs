//! Owns the encoding of base64 with padding. Driven by logins and headers. Keeps no state.

/// Encodes bytes, with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |index| u32::from(*chunk.get(index).unwrap_or(&0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (index, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let letter = LETTERS[(bits >> shift & 63) as usize];
            text.push(if index <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// Decodes a padded text; none where it is not canonical.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let plain = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    if !text.len().is_multiple_of(4) || (text.len() - plain.len() > 0 && plain.len() % 4 < 2) {
        return None;
    }
    let mut bytes = Vec::with_capacity(plain.len());
    let (mut bits, mut count) = (0_u32, 0);
    for byte in plain {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (bits == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_padded() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (text, wanted) in cases {
            assert_eq!(encode(text.as_bytes()), wanted);
        }
        assert_eq!(encode(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn only_canonical_texts_are_decoded() {
        for bytes in [&b""[..], b"f", b"fo", b"foo", &[0xfb, 0xff, 0xfe]] {
            assert_eq!(decode(encode(bytes).as_bytes()).as_deref(), Some(bytes));
        }
        for bad in ["a", "ab", "abc", "a===", "ab=c", "QR=="] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
