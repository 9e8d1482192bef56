//! An authority for a world that a test fills.

use std::sync::Arc;
use std::time::Duration;

use super::World;
use super::objects::{self, Obj};
use crate::authority::{Claim, ForceDeleteRequest, Parts, VerifierConfig};
use crate::client::Connection;
use crate::clock::Env;
use crate::events::Recorder;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::model::PodKey;
use crate::transport::NoTransport;

/// The parts of an authority for this world: with a quarantine of forty seconds, and no devices.
pub(crate) fn parts(
    world: &World,
    env: &Env,
    connection: Connection,
    leadership: &Arc<Leadership>,
    metrics: &Metrics,
) -> Parts {
    Parts {
        connection,
        cache: Arc::clone(world.cache()),
        env: env.clone(),
        config: VerifierConfig {
            quarantine: Duration::from_secs(40),
            trust_out_of_service_taint: false,
            agent_reports: None,
            exclusive_backends: ["cloud.example.com".to_owned()].into(),
        },
        leadership: Arc::clone(leadership),
        journal: Arc::default(),
        events: Recorder::new(env.clone(), metrics.authority.clone()),
        metrics: metrics.authority.clone(),
        transport: Arc::new(NoTransport),
        identity: "this-process".to_owned(),
    }
}

/// A pod for which a force deletion can be requested.
pub(crate) trait Claimed {
    fn force(&self, claim: Claim) -> ForceDeleteRequest;
}

impl Claimed for Obj {
    fn force(&self, claim: Claim) -> ForceDeleteRequest {
        let meta = &self.0["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap();
        let uid = objects::uid(text("uid"));
        let pod = PodKey { namespace: text("namespace").into(), name: text("name").into(), uid };
        ForceDeleteRequest { pod, rv: text("resourceVersion").parse().unwrap(), claim, requested: None }
    }
}
