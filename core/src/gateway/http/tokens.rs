//! Owns the tokens of clients, by numbers. A token that stays the same keeps its number when the configuration is
//! reloaded, and no number is reused, so a session keeps its owner. Driven by the gate and the front. Never shows a
//! secret.

use crate::gateway::access::Access;
use crate::http_access::is_same;

/// All tokens. The gate has them and the front has them, and both number them alike.
#[derive(Clone, Default)]
pub(super) struct Tokens {
    all: Vec<KnownToken>,
    next: usize,
}

#[derive(Clone)]
struct KnownToken {
    number: usize,
    secret: String,
    access: Access,
}

impl std::fmt::Debug for Tokens {
    /// Without the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all.iter().map(|known| (known.number, &known.access))).finish()
    }
}

impl Tokens {
    /// The tokens are these now.
    pub(super) fn renew(&mut self, tokens: &[(String, Access)]) {
        let before = std::mem::take(&mut self.all);
        for (secret, access) in tokens {
            let kept = before.iter().find(|old| old.secret == *secret && old.access == *access);
            let number = kept.map_or(self.next, |old| old.number);
            self.next = self.next.max(number + 1);
            self.all.push(KnownToken { number, secret: secret.clone(), access: access.clone() });
        }
    }

    /// Whether no token is needed.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of a token. All are compared, for a constant time.
    pub(super) fn number(&self, given: &str) -> Option<usize> {
        let mut found = None;
        for known in &self.all {
            if is_same(given.as_bytes(), known.secret.as_bytes()) {
                found = Some(known.number);
            }
        }
        found
    }

    /// What a token opens; none where there is no such one any more, or where one is needed.
    pub(super) fn access(&self, number: Option<usize>) -> Option<Access> {
        match number {
            None => self.is_empty().then(Access::default),
            Some(number) => {
                let known = self.all.iter().find(|known| known.number == number)?;
                Some(known.access.clone())
            }
        }
    }
}
