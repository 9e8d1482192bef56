//! The same requests to two API servers, and the differences between the answers.
//!
//! Sequences of requests are drawn from a seed ([`Generator`]) over a tiny set of names, so that they meet objects of
//! earlier requests: stale objects are sent again, preconditions are right, wrong or old. A [`Transcript`] records the
//! answers of one server, in a form in which UIDs, versions and times of two servers can be compared ([`compare`]). The
//! watch streams from every version that was seen are part of it.
//!
//! Besides these sequences, four clients work on the same keys at once on each side ([`together()`]), and their answers
//! must fit one order.

mod compare;
mod generate;
mod normal;
mod operation;
mod own;
mod run;
mod scene;
mod shapes;
mod templates;
mod together;
mod watches;

pub use compare::{DIVERGENCES, Difference, Divergence, compare};
pub use generate::Generator;
pub use normal::{Normaliser, Reply};
pub use operation::Operation;
pub use run::{Session, Side, Transcript, WatchRun};
pub use shapes::shape;
pub use together::{TimedRequest, disorder, met_each_other, together};
pub use watches::watch_targets;
