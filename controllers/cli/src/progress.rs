//! Prints what a command waits for once that takes longer than expected: on stderr, so that stdout stays valid for
//! programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pod_safety_shared::client::{OnReadPause, Target};

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

/// Prints once what reads wait for, if the API server asks for pauses that are long.
pub(crate) fn announce_pauses(target: &Target) -> OnReadPause {
    let (place, is_announced) = (target.describe(), AtomicBool::new(false));
    Arc::new(move |code, waits| {
        if waits > ANNOUNCE_AFTER && !is_announced.swap(true, Ordering::Relaxed) {
            let line = format!("waiting for {place}, which answers {code} and asks for a pause (Retry-After) …");
            print_stderr(&sanitize::line(&line));
        }
    })
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use pod_safety_shared::testing::AnswerFn;
    use serde_json::{Value, json};

    use super::*;
    use crate::untrusted_text::{objects, run_command, server};
    use crate::{Exit, test_session};

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

    /// Commands ended with an error where kubectl reads again.
    #[test]
    fn bug_a_command_ended_when_the_api_server_asked_for_a_pause() {
        for (times, announced) in [(2, 0), (4, 1)] {
            let (well, left) = (server(objects(), "v1.37.2".to_owned(), false), Mutex::new(times));
            let busy: Arc<AnswerFn> = Arc::new(move |method, path, body| {
                let mut left = left.lock();
                if *left == 0 {
                    return well(method, path, body);
                }
                *left -= 1;
                (429, json!({ "kind": "Status", "details": { "retryAfterSeconds": 1 } }))
            });
            let (code, text) = run_command("status", &busy);
            assert_eq!(code, Exit::Blocked.code(), "{text}");
            let line = "waiting for the API server, which answers 429 and asks for a pause (Retry-After) …\n";
            assert_eq!(text.matches(line).count(), announced, "{text}");
        }
    }
}
