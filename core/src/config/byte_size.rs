//! Owns how sizes are written in configuration, variables and flags: `16MiB`. Used by `value_syntax.rs` and by flags. Never
//! knows a key.

pub(super) const SIZE_UNITS: [(&str, u64); 4] =
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Reads a number of bytes with its unit, such as `16MiB`.
pub fn parse_size(text: &str) -> Option<u64> {
    // Nothing is nothing in any unit.
    if text == "0" {
        return Some(0);
    }
    let (number, unit) =
        SIZE_UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    // `parse` alone would also take a sign.
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| number.parse::<u64>().ok()?.checked_mul(*unit))?
}
