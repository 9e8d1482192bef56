//! A headless Chromium, controlled over its debugging pipe: JSON messages, each terminated by a zero byte.

use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The browser that tests/install.sh found, whatever its name.
const CHROMIUM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/bin/chromium");

/// It reads from file descriptor 3 and writes to 4.
const START: &str = r#"exec "$0" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --remote-debugging-pipe \
    --user-data-dir="$1" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

pub(crate) struct Browser {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    number: u64,
    _process: Child,
    _profile: TempDir,
}

/// An open page.
pub(crate) struct Tab(String);

impl Browser {
    pub(crate) fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut chromium = Command::new("sh");
        chromium.args(["-c", START, CHROMIUM]).arg(profile.path()).kill_on_drop(true);
        let mut process = chromium.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, answers) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { orders, answers, number: 0, _process: process, _profile: profile }
    }

    async fn order(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut order = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = session {
            order["sessionId"] = json!(session);
        }
        self.orders.write_all(format!("{order}\0").as_bytes()).await.unwrap();
        loop {
            let mut answer = Vec::new();
            self.answers.read_until(0, &mut answer).await.unwrap();
            answer.pop();
            // Other messages are events.
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    pub(crate) async fn open(&mut self, address: &str) -> Tab {
        let target = self.order(None, "Target.createTarget", json!({ "url": address })).await;
        let wish = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.order(None, "Target.attachToTarget", wish).await;
        Tab(session["sessionId"].as_str().unwrap().to_owned())
    }

    /// The visible text of the page.
    pub(crate) async fn text(&mut self, tab: &Tab) -> String {
        let value = self.evaluate(tab, "document.body.innerText").await;
        value.as_str().unwrap_or_default().to_owned()
    }

    /// The value of an expression; a promise is awaited.
    pub(crate) async fn evaluate(&mut self, tab: &Tab, expression: &str) -> Value {
        let wish = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        self.order(Some(&tab.0), "Runtime.evaluate", wish).await["result"]["value"].clone()
    }
}
