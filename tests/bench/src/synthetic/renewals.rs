//! The schedule of Lease renewals: at an even rate, each node once per round, in an order in which neighbours are far apart. It is pure
//! arithmetic, so a watch may start at any version.

use std::time::Duration;

/// A prime: the step from one node to the next.
const STEP: usize = 7_919;

#[derive(Clone, Debug)]
pub(crate) struct RenewalSchedule {
    /// The node of each position in a round, and the position of each node.
    order: Vec<u32>,
    place: Vec<u32>,
    per_second: u32,
    /// When the first renewal was due, since the Unix epoch.
    started: Duration,
}

impl RenewalSchedule {
    pub(crate) fn new(nodes: usize, per_second: u32, started: Duration) -> Self {
        // If the step divides the number of nodes, not all nodes would be reached.
        let step = if nodes.is_multiple_of(STEP) { 1 } else { STEP };
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let order: Vec<u32> = (0..nodes).map(|at| number(at * step % nodes)).collect();
        let mut place = vec![0; nodes];
        for (at, node) in order.iter().enumerate() {
            place[*node as usize] = number(at);
        }
        Self { order, place, per_second, started }
    }

    /// The number of renewals after this time.
    pub(crate) fn count(&self, since_began: Duration) -> usize {
        if self.order.is_empty() {
            return 0;
        }
        let count = since_began.as_micros() * u128::from(self.per_second) / 1_000_000;
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// How long after the start this renewal is due; the first is 1. `None`: never.
    pub(crate) fn due(&self, renewal: usize) -> Option<Duration> {
        let micros = (renewal as u128 * 1_000_000).checked_div(u128::from(self.per_second))?;
        u64::try_from(micros).ok().map(|micros| Duration::from_micros(micros + 1))
    }

    /// The time of this renewal, since the Unix epoch.
    pub(crate) fn moment(&self, renewal: usize) -> Duration {
        self.started + self.due(renewal).unwrap_or_default()
    }

    /// The node whose Lease this renewal updates.
    pub(crate) fn node(&self, renewal: usize) -> usize {
        self.order[(renewal - 1) % self.order.len()] as usize
    }

    /// The last renewal of a node among the first `renewals` ones.
    pub(crate) fn last(&self, node: usize, renewals: usize) -> Option<usize> {
        let place = self.place[node] as usize;
        let rounds = renewals.checked_sub(place + 1)? / self.order.len();
        Some(rounds * self.order.len() + place + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_renewed_once_per_round() {
        for nodes in [1, 2, 10, STEP, 10_000] {
            let beats = RenewalSchedule::new(nodes, 10, Duration::ZERO);
            let mut last = vec![None; nodes];
            for renewal in 1..=nodes * 2 + nodes / 2 {
                last[beats.node(renewal)] = Some(renewal);
            }
            for (node, renewal) in last.into_iter().enumerate() {
                assert_eq!(beats.last(node, nodes * 2 + nodes / 2), renewal, "{node} of {nodes}");
                assert!(renewal > Some(nodes));
                assert_eq!(beats.last(node, 0), None);
            }
        }
    }

    #[test]
    fn due_renewals_are_past_and_the_next_is_not() {
        let beats = RenewalSchedule::new(7, 13_000, Duration::from_secs(1));
        for renewal in [1, 2, 500, 13_000, 1_000_003] {
            let due = beats.due(renewal).unwrap();
            assert_eq!(beats.count(due), renewal);
            assert_eq!(beats.count(due - Duration::from_micros(2)), renewal - 1);
        }
        assert_eq!(RenewalSchedule::new(7, 0, Duration::ZERO).due(1), None);
    }
}
