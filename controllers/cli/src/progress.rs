//! Prints what a command waits for once that takes longer than expected: on stderr, so that stdout stays valid for
//! programs.

use std::time::Duration;

use super::{print_stderr, sanitize};

/// Without a line for longer than this, an operator cannot know whether the command still runs.
const ANNOUNCE_AFTER: Duration = Duration::from_secs(2);

/// Runs `work`, and prints what it waits for if it takes long.
pub(crate) async fn announce_wait<T>(what: impl FnOnce() -> String, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        // Real time, whatever the clock of the cluster is.
        () = tokio::time::sleep(ANNOUNCE_AFTER) => {}
    }
    print_stderr(&sanitize::line(&format!("waiting for {} …", what())));
    work.await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pod_safety_shared::testing::AnswerFn;
    use serde_json::Value;

    use super::*;
    use crate::test_session;

    #[tokio::test(start_paused = true)]
    async fn a_wait_of_more_than_two_seconds_is_announced_once() {
        for (millis, printed) in
            [(1_900, ""), (2_100, "waiting for the leader …\n"), (60_000, "waiting for the leader …\n")]
        {
            let unused: Arc<AnswerFn> = Arc::new(|_, _, _| (200, Value::Null));
            test_session::start_session(&unused);
            let work = tokio::time::sleep(Duration::from_millis(millis));
            announce_wait(|| "the leader".to_owned(), work).await;
            assert_eq!(test_session::finish_session(), printed, "{millis}");
        }
    }
}
