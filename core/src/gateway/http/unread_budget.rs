//! Owns the memory budget for messages that clients have not read: of all connections together, of each token, and of
//! each connection. Driven by `sessions_and_streams.rs` with what the daemon has handed to connections and what these have
//! written. Never holds a message.
//!
//! Short and long messages have room of their own, so that the error in the place of a long answer finds room.

use std::collections::BTreeMap;

use super::HttpExchange;
use crate::limits::{
    FRONT_SHORT_ALL_BYTES_MAX, FRONT_SHORT_BYTES, FRONT_SHORT_TOKEN_BYTES_MAX,
    FRONT_UNREAD_ALL_BYTES_MAX, FRONT_UNREAD_BYTES_MAX, FRONT_UNREAD_EACH_BYTES,
    FRONT_UNREAD_OWN_BYTES, FRONT_UNREAD_TOKEN_BYTES_MAX,
};
use crate::mcp::envelope::Id;
use crate::mcp::responses;

/// The number of a token; none where no token is needed.
type Token = Option<usize>;

/// Bytes of one size of messages.
#[derive(Debug, Default)]
struct Pot {
    all: usize,
    /// Those that have some.
    tokens: BTreeMap<Token, usize>,
}

/// The bytes that are not read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    short: Pot,
    long: Pot,
    /// Of long messages: the connections that have some.
    exchanges: BTreeMap<HttpExchange, usize>,
}

impl Unread {
    /// Whether a message of this length finds room.
    pub(super) fn admits(&self, token: Token, bytes: usize) -> bool {
        let (pot, token_max, all_max) = match is_short(bytes) {
            true => (&self.short, FRONT_SHORT_TOKEN_BYTES_MAX, FRONT_SHORT_ALL_BYTES_MAX),
            false => (&self.long, FRONT_UNREAD_TOKEN_BYTES_MAX, FRONT_UNREAD_ALL_BYTES_MAX),
        };
        let (own, bytes) = (pot.tokens.get(&token).copied().unwrap_or(0), cost(bytes));
        (own == 0 || own + bytes <= token_max)
            && (own + bytes <= FRONT_UNREAD_OWN_BYTES || pot.all + bytes <= all_max)
    }

    /// The same for an answer over a connection, which has a bound of its own.
    pub(super) fn admits_answer(&self, token: Token, exchange: HttpExchange, bytes: usize) -> bool {
        let unread = self.exchanges.get(&exchange).copied().unwrap_or(0);
        let fits = is_short(bytes) || unread == 0 || unread + cost(bytes) <= FRONT_UNREAD_BYTES_MAX;
        fits && self.admits(token, bytes)
    }

    /// A message was handed to a connection.
    pub(super) fn add(&mut self, token: Token, exchange: HttpExchange, bytes: usize) {
        let pot = self.pot(bytes);
        pot.all += cost(bytes);
        *pot.tokens.entry(token).or_default() += cost(bytes);
        if !is_short(bytes) {
            *self.exchanges.entry(exchange).or_default() += cost(bytes);
        }
    }

    /// The message has gone from memory: it was written, or its connection is closed.
    pub(super) fn remove(&mut self, token: Token, exchange: HttpExchange, bytes: usize) {
        let pot = self.pot(bytes);
        pot.all -= cost(bytes);
        take(&mut pot.tokens, token, cost(bytes));
        if !is_short(bytes) {
            take(&mut self.exchanges, exchange, cost(bytes));
        }
    }

    fn pot(&mut self, bytes: usize) -> &mut Pot {
        if is_short(bytes) { &mut self.short } else { &mut self.long }
    }
}

fn is_short(bytes: usize) -> bool {
    bytes <= FRONT_SHORT_BYTES
}

fn cost(bytes: usize) -> usize {
    bytes + FRONT_UNREAD_EACH_BYTES
}

/// Takes bytes from an entry, which goes with the last of them.
fn take<K: Ord>(all: &mut BTreeMap<K, usize>, key: K, bytes: usize) {
    if let Some(its) = all.get_mut(&key) {
        *its = its.saturating_sub(bytes);
        if *its == 0 {
            all.remove(&key);
        }
    }
}

/// The answer to requests in the place of one for which there is no room.
pub(super) fn unread_error(ids: &[Id]) -> Vec<u8> {
    let why = "server busy: answers not read; this one was dropped, after the request was done; read the others first";
    let errors = ids.iter().map(|id| responses::failure(id, -32603, "server_busy", true, why));
    match ids {
        [_] => errors.flatten().collect(),
        _ => [b"[", errors.collect::<Vec<_>>().join(&b',').as_slice(), b"]"].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;
    const ONE: Token = None;
    const TWO: Token = Some(1);
    const THREE: Token = Some(2);
    const FOUR: Token = Some(3);
    const FIVE: Token = Some(4);
    const SIX: Token = Some(5);

    fn exchange(number: u64) -> HttpExchange {
        HttpExchange(number)
    }

    /// Adds messages of a token, each to a connection of its own, until there is no room.
    fn fill(unread: &mut Unread, token: Token, bytes: usize) -> u64 {
        let mut count = 0;
        while unread.admits(token, bytes) {
            unread.add(token, exchange(count), bytes);
            count += 1;
        }
        count
    }

    #[test]
    fn a_token_has_a_bound_and_all_have_one() {
        let mut unread = Unread::default();
        assert_eq!(fill(&mut unread, ONE, MIB), 15);
        // An error still finds room, and so do other tokens.
        assert!(unread.admits(ONE, 200) && !unread.admits(ONE, MIB));
        for token in [TWO, THREE, FIVE] {
            assert_eq!(fill(&mut unread, token, MIB), 15);
        }
        assert!((3..7).contains(&fill(&mut unread, SIX, MIB)), "what is left of all");
        // One that has nothing unread has a little, even where others take all.
        assert!(unread.admits(FOUR, MIB / 2) && !unread.admits(FOUR, 2 * MIB));
        for token in [ONE, TWO] {
            (0..15).for_each(|number| unread.remove(token, exchange(number), MIB));
        }
        assert!(unread.admits(FOUR, 2 * MIB) && unread.admits(ONE, MIB));
    }

    #[test]
    fn short_messages_have_a_bound_too() {
        let mut unread = Unread::default();
        let count = fill(&mut unread, ONE, 72);
        assert_eq!(count as usize, FRONT_SHORT_TOKEN_BYTES_MAX / (72 + FRONT_UNREAD_EACH_BYTES));
        assert!(unread.admits(ONE, MIB) && unread.admits(TWO, 72));
        (0..count).for_each(|number| unread.remove(ONE, exchange(number), 72));
        assert_eq!((unread.short.all, unread.short.tokens.len()), (0, 0));
    }

    #[test]
    fn the_longest_message_fits_where_it_is_alone() {
        let mut unread = Unread::default();
        assert!(unread.admits(ONE, crate::limits::MESSAGE_BYTES_MAX));
        unread.add(ONE, exchange(1), crate::limits::MESSAGE_BYTES_MAX);
        assert!(!unread.admits(TWO, crate::limits::MESSAGE_BYTES_MAX));
        assert!(!unread.admits(ONE, MIB) && unread.admits(TWO, MIB / 2));
    }

    #[test]
    fn answers_of_one_connection_have_a_bound() {
        let mut unread = Unread::default();
        let (first, other) = (exchange(1), exchange(2));
        assert!(unread.admits_answer(ONE, first, 10 * MIB), "a single one");
        unread.add(ONE, first, 3 * MIB);
        assert!(unread.admits_answer(ONE, first, MIB / 2));
        assert!(!unread.admits_answer(ONE, first, 2 * MIB));
        assert!(unread.admits_answer(ONE, other, 2 * MIB) && unread.admits_answer(ONE, first, 9));
        unread.remove(ONE, first, 3 * MIB);
        assert!(unread.admits_answer(ONE, first, 2 * MIB) && unread.exchanges.is_empty());
    }
}
