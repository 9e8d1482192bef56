//! `pod-safety ui`: what `status` and `explain` say, on one page in a browser. Reads only, with the user's kubeconfig.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args as ClapArgs;
use pod_safety_shared::record::error_chain;
use pod_safety_shared::screen::{Page, Screen, Source, Told};

use super::cluster::{ConnectArgs, Session};
use super::status::Seen;
use super::{Exit, called, clean, explain, say};

const PAGE: Page = Page {
    html: include_str!("ui/page.html"),
    style: include_str!("ui/page.css"),
    script: include_str!("ui/page.js"),
};

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("ui"))]
pub struct Args {
    /// The address to listen on, of this machine only; port 0 takes any free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8088")]
    address: SocketAddr,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// What the page shows.
struct Asked(Session);

/// A browser turns text round as a terminal does, so that its texts are cleaned as those of a terminal are.
fn told(answer: anyhow::Result<serde_json::Value>) -> Result<String, String> {
    let clean = answer.map(|mut document| {
        clean::texts(&mut document);
        called::words(&document.to_string()).into_owned()
    });
    clean.map_err(|error| clean::line(&error_chain(error.as_ref())).into_owned())
}

impl Source for Asked {
    fn overview(&self) -> Told<'_> {
        let seen = async {
            let seen = Seen::by(&self.0).await?;
            Ok(serde_json::to_value(seen.document())?)
        };
        Box::pin(async { told(seen.await) })
    }

    fn explain<'a>(&'a self, kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> Told<'a> {
        Box::pin(async move { told(explain::asked(&self.0, kind, namespace, name).await) })
    }
}

/// What the page is given of the whole cluster, and of a pod that is stuck.
#[cfg(test)]
pub(crate) async fn pages(session: Session) -> Vec<String> {
    let asked = Asked(session);
    let explained = asked.explain("pod", Some("shop"), "orders-1").await;
    vec![asked.overview().await.unwrap(), explained.unwrap()]
}

impl Args {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        cluster.reach("ui", async |session| self.run(session).await)
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        let screen = Screen::bind(self.address).await?;
        say(&format!("pod-safety: open {} in a browser; Ctrl-C stops it", screen.link()));
        let env = session.env.clone();
        screen.serve(PAGE, Arc::new(Asked(session)), env).await;
        Ok(Exit::Fine)
    }
}
