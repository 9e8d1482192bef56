//! Campaigns: plans drawn from seeds, run, judged and counted.
//!
//! | file | subject |
//! |---|---|
//! | `plan` | what happens in a run, as data |
//! | `draw` | a plan from a seed |
//! | `many` | many seeds on all cores, and what they came to |
//! | `twins` | plans whose worlds look the same |
//! | `plant` | bugs that can be planted into what is under test |
//!
//! A plan is drawn before its run, and everything in the run draws by keys: taking
//! one fault out of a plan changes nothing else.

mod draw;
mod many;
mod plan;
mod plant;
mod twins;

pub use draw::draw;
pub use many::{Tally, campaign, first_seed_that_breaks, same_twice, tell};
pub use plan::{Fault, Plan, Trouble};
pub use plant::Plant;
pub use twins::twins;
