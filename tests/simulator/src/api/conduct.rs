//! What the world controls: how long requests take and whether they arrive, how far a server lags, which links it has,
//! and how its watches are disturbed.

use std::time::Duration;

use super::route::ApiRequest;

/// The result of a request, decided when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is executed and answered.
    Deliver,
    /// It is lost before the server has it.
    DropBefore,
    /// It is executed, and the answer is lost.
    ApplyThenLoseAnswer,
    /// It is executed, and half of the answer arrives.
    CutAnswer,
    /// It is answered with this code and not executed.
    Error(u16),
}

/// How long a request takes, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// From sending to executing.
    pub before: Duration,
    /// From executing to answering.
    pub after: Duration,
    /// The result.
    pub fate: Fate,
    /// Whether the sender gets a broken connection for a lost request; otherwise it waits without an answer.
    pub reset: bool,
    /// When it is sent, since the start of the run; `None`: not recorded.
    pub sent: Option<Duration>,
}

impl Course {
    /// At once, and nothing is lost.
    pub const PROMPT: Self =
        Self { before: Duration::ZERO, after: Duration::ZERO, fate: Fate::Deliver, reset: false, sent: None };
}

/// The world's control of every request: latency, loss, refusal.
pub trait Conduct: Send + Sync + 'static {
    /// A request is sent to `server`.
    fn course(&self, _server: &str, _asked: &ApiRequest) -> Course {
        Course::PROMPT
    }

    /// How long an API server takes from counting an eviction to carrying it out: two writes, and the server may die
    /// between them.
    fn between(&self, _server: &str, _asked: &ApiRequest) -> Duration {
        Duration::ZERO
    }

    /// A request was executed with this code; it caused the log's changes after `revision_before`.
    fn executed(&self, _server: &str, _asked: &ApiRequest, _code: u16, _revision_before: u64) {}
}

/// A world in which nothing takes time and nothing fails.
#[derive(Clone, Copy, Debug)]
pub struct Prompt;

impl Conduct for Prompt {}

/// How a server follows the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// It reads every write as soon as the write is done.
    AtOnce,
    /// It reads a write this much later.
    After(Duration),
    /// It reads nothing until this changes: its watches and cached reads show the past.
    Held,
}

/// Whether a server reaches etcd for writes and quorum reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It does.
    Whole,
    /// No request arrives there: such requests end in 504, not applied.
    Cut,
    /// Requests arrive and answers do not: 504, applied.
    AnswersLost,
}

/// How open watches of a caller are disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// From now on nothing arrives, and the client gets no error.
    Mute,
    /// The connections break.
    Reset,
    /// The server ends them properly.
    Close,
}
