//! `pod-safety ui`: the content of `status` and `explain` on one page in a browser. Reads only, with the user's
//! kubeconfig.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args as ClapArgs;
use pod_safety_shared::record::error_chain;
use pod_safety_shared::screen::{JsonFuture, Page, Source, WebUi};

use super::cluster::{ConnectArgs, Session};
use super::status::StatusReport;
use super::{Exit, explain, invocation, print_stderr, sanitize};

const PAGE: Page =
    Page { html: include_str!("ui/page.html"), style: include_str!("ui/page.css"), script: include_str!("ui/page.js") };

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("ui"))]
pub struct Args {
    /// The address to listen on, of this machine only; port 0 takes any free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8088")]
    address: SocketAddr,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// The source of the page's data.
struct SessionSource(Session);

/// A browser reorders text by control characters as a terminal does, so texts are sanitized in the same way.
fn to_json(answer: anyhow::Result<serde_json::Value>) -> Result<String, String> {
    let clean = answer.map(|mut document| {
        sanitize::json_texts(&mut document);
        invocation::adapt_commands(&document.to_string()).into_owned()
    });
    clean.map_err(|error| sanitize::line(&error_chain(error.as_ref())).into_owned())
}

impl Source for SessionSource {
    fn overview(&self) -> JsonFuture<'_> {
        let seen = async {
            let seen = StatusReport::read(&self.0).await?;
            Ok(serde_json::to_value(seen.document())?)
        };
        Box::pin(async { to_json(seen.await) })
    }

    fn explain<'a>(&'a self, kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> JsonFuture<'a> {
        Box::pin(async move { to_json(explain::explain_json(&self.0, kind, namespace, name).await) })
    }
}

/// The data of the page about the whole cluster, and about a stuck pod.
#[cfg(test)]
pub(crate) async fn pages(session: Session) -> Vec<String> {
    let source = SessionSource(session);
    let explained = source.explain("pod", Some("shop"), "orders-1").await;
    vec![source.overview().await.unwrap(), explained.unwrap()]
}

impl Args {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        cluster.with_session("ui", async |session| self.run(session).await)
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        let screen = WebUi::bind(self.address).await?;
        print_stderr(&format!("pod-safety: open {} in a browser; Ctrl-C stops it", screen.url()));
        let env = session.env.clone();
        screen.serve(PAGE, Arc::new(SessionSource(session)), env).await;
        Ok(Exit::Fine)
    }
}
