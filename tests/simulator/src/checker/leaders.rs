//! S9, between processes: while the term of one runs, no other writes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::requests::is_lease_of_ours;
use super::{Checker, Invariant};
use crate::world::word;

/// Until when each process may write, by the renewals that it knows to be applied.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    terms: BTreeMap<String, Duration>,
}

impl Checker {
    /// A process hears the answer to a write of the Lease: it renewed its term, or
    /// gave it back.
    pub(crate) fn leads(
        &self,
        caller: &str,
        method: &http::Method,
        path: &str,
        body: &[u8],
        sent: Duration,
        code: u16,
    ) {
        if *method == http::Method::GET || !is_lease_of_ours(path) || !(200..300).contains(&code) {
            return;
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let terms = &mut self.state.lock().leaders.terms;
        if word(&body, "/spec/holderIdentity").is_empty() {
            terms.remove(caller);
        } else {
            terms.insert(caller.to_owned(), sent + self.promise.renew_deadline);
        }
    }

    /// A process writes to a pod: nobody else may, now.
    pub(crate) fn leads_alone(&self, caller: &str) {
        let now = self.now();
        let mut state = self.state.lock();
        let other = state.leaders.terms.iter().find(|(other, ends)| *other != caller && now < **ends);
        if let Some(what) = other
            .map(|(other, ends)| format!("{caller} writes in the term of {other}, which ends at {ends:?}"))
        {
            state.violated(now, Invariant::Term, what);
        }
    }
}
