//! Owns how targets divide their input: a few bytes that choose, and the rest, cut into pieces. Used by the targets.

/// The first byte, and the rest; none of an empty input.
pub fn first(data: &[u8]) -> Option<(u8, &[u8])> {
    data.split_first().map(|(first, rest)| (*first, rest))
}

/// The bytes in pieces whose lengths follow from the seed: one byte each, or up to eight or 64 bytes.
pub fn pieces(seed: u8, mut bytes: &[u8]) -> Vec<&[u8]> {
    let longest = [1, 8, 64][usize::from(seed % 3)];
    let (mut state, mut pieces) = (u64::from(seed) + 1, Vec::new());
    while !bytes.is_empty() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = ((state >> 33) as usize % longest + 1).min(bytes.len());
        let (piece, rest) = bytes.split_at(length);
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}
