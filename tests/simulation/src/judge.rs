//! What must never happen.

use crate::time::{SECOND, SimTime};
use std::collections::BTreeMap;
use std::fmt;

/// Those who hold something that a token guards: leadership, or a lock.
#[derive(Debug)]
pub struct Claims {
    what: String,
    /// The most that may hold it at once.
    limit: usize,
    holders: BTreeMap<usize, Claim>,
    /// The highest token so far, and its holder.
    highest: Option<(u64, usize)>,
    /// How often somebody has begun to hold it.
    pub terms: u64,
    /// A server does not show one of those who wait: another may hold it, and give it up, before that one does.
    pub tokens_may_fall: bool,
}

/// One holder's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub token: u64,
    pub until: SimTime,
    /// It may be beside any number of others that are shared.
    pub is_shared: bool,
    /// Since when it may be beside another, if it may.
    pub excused_since: Option<SimTime>,
}

/// Something that must never happen has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl Claims {
    pub fn new(what: impl Into<String>, limit: usize) -> Self {
        Self {
            what: what.into(),
            limit,
            holders: BTreeMap::new(),
            highest: None,
            terms: 0,
            tokens_may_fall: false,
        }
    }

    /// Notes that a holder claims it until a moment. Returns whether the claim is new.
    ///
    /// # Errors
    /// Too many hold it at this moment, or the token is not higher than those before.
    pub fn claim(&mut self, holder: usize, claim: Claim, now: SimTime) -> Result<bool, Violation> {
        let is_known = self.holders.get(&holder).is_some_and(|known| known.token == claim.token);
        self.holders.insert(holder, claim);
        let living = self
            .holders
            .iter()
            .filter(|(_, claim)| claim.until > now && claim.excused_since.is_none());
        let are_too_many = living.clone().count() > self.limit
            && living.clone().any(|(_, claim)| !claim.is_shared);
        if claim.until > now && are_too_many && claim.excused_since.is_none() {
            let living: Vec<_> =
                living.map(|(holder, claim)| format!("{holder}: {claim}")).collect();
            let what = &self.what;
            return Err(Violation(format!(
                "{what} is held by too many at once: {}",
                living.join(", ")
            )));
        }
        if is_known {
            return Ok(false);
        }
        if let Some((highest, by)) = self.highest
            && self.limit == 1
            && !self.tokens_may_fall
            && !claim.is_shared
            && (claim.token < highest || claim.token == highest && by != holder)
        {
            let what = &self.what;
            return Err(Violation(format!("{what}: token {} after {highest}", claim.token)));
        }
        if self.highest.is_none_or(|(highest, _)| highest < claim.token) {
            self.highest = Some((claim.token, holder));
        }
        self.terms += 1;
        Ok(true)
    }

    /// Notes that a holder no longer claims it. Returns whether it did.
    pub fn release(&mut self, holder: usize) -> bool {
        self.holders.remove(&holder).is_some()
    }

    /// Returns since when a holder's claim with this token is excused. Once it is released, an excuse begins again.
    pub fn excused_since(&self, holder: usize, token: u64) -> Option<SimTime> {
        self.holders.get(&holder).filter(|claim| claim.token == token)?.excused_since
    }

    /// Returns the claim of a holder that lasts at this moment.
    pub fn of(&self, holder: usize, now: SimTime) -> Option<Claim> {
        self.holders.get(&holder).copied().filter(|claim| claim.until > now)
    }

    /// Returns who holds it at this moment.
    pub fn holder(&self, now: SimTime) -> Option<usize> {
        let mut holders = self.holders.iter();
        let found = holders.find(|(_, claim)| claim.until > now && claim.excused_since.is_none());
        found.map(|(holder, _)| *holder)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, until, .. } = self;
        write!(f, "token {token} until {}.{:03}", until / SECOND, until % SECOND / 1_000_000)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hold_one_lock_only_one_after_the_other_and_with_growing_tokens() {
        let claim = |token, until| Claim { token, until, is_shared: false, excused_since: None };
        let mut claims = Claims::new("it", 1);
        assert_eq!(claims.claim(0, claim(5, 100), 10), Ok(true));
        assert_eq!(claims.claim(0, claim(5, 200), 90), Ok(false), "renewed");
        assert!(claims.claim(1, claim(6, 300), 199).is_err(), "until then the first holds it");
        assert_eq!(claims.claim(1, claim(6, 300), 200), Ok(false), "it was noted all the same");
        assert!(claims.claim(0, claim(4, 500), 400).is_err(), "a token has fallen");
    }

    #[test]
    fn one_that_is_excused_is_beside_another_and_no_longer_when_its_excuse_has_ended() {
        let claim =
            |token, excused_since| Claim { token, until: 100, is_shared: false, excused_since };
        let mut claims = Claims::new("it", 1);
        assert_eq!(claims.claim(0, claim(5, None), 10), Ok(true));
        assert_eq!(claims.claim(1, claim(6, Some(20)), 20), Ok(true));
        assert_eq!(claims.holder(20), Some(0));
        assert!(claims.claim(1, claim(6, None), 30).is_err());
    }

    #[test]
    fn an_excuse_ends_with_the_claim_and_with_the_token() {
        let claim = |token| Claim { token, until: 100, is_shared: false, excused_since: Some(10) };
        let mut claims = Claims::new("it", 1);
        claims.claim(0, claim(5), 10).unwrap();
        assert_eq!(claims.excused_since(0, 5), Some(10));
        assert_eq!(claims.excused_since(0, 6), None);
        assert_eq!(claims.excused_since(1, 5), None);
        claims.release(0);
        assert_eq!(claims.excused_since(0, 5), None, "it was refused, and waits again");
    }

    #[test]
    fn readers_hold_a_lock_together_and_no_writer_beside_them() {
        let mut claims = Claims::new("it", 1);
        let reader = Claim { token: 5, until: 100, is_shared: true, excused_since: None };
        assert_eq!(claims.claim(0, reader, 10), Ok(true));
        assert_eq!(claims.claim(1, reader, 10), Ok(true));
        assert!(claims.claim(2, Claim { is_shared: false, ..reader }, 10).is_err());
    }
}
