//! A cloud that switches machines: they are its instances, and requests name them by providerID.
//!
//! It behaves as documented, which guarantees less than a device beside a machine. A request may be answered from a
//! stale copy, and the next one from another copy. It limits the rate of requests. A stop takes time, and the instance
//! runs meanwhile. Other clients with rights stop instances, start them again, and terminate them. While its region is
//! lost, answers are late or missing, or find no instance.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_shared::transport::{Act, DeviceError, Power};

use super::devices::Device;
use super::run::World;
use crate::campaign::Malfunction;

/// How long an instance takes to stop, without disturbances.
const STOPS_WITHIN: u64 = 12;

/// How many copies of its state answer. One of them is never stale.
const COPIES: u64 = 3;
/// For how many seconds the same copy answers.
const STAYS: u64 = 60;

/// What a provider records of one instance, besides its power.
#[derive(Debug)]
pub(super) struct Provider {
    /// How stale its copies may be.
    behind: Duration,
    /// When it got an order to stop, and until when the stop takes.
    stops: Mutex<Vec<(Duration, Duration)>>,
}

/// The providerID of a node.
pub(super) fn provider_id(node: usize) -> String {
    format!("aws:///eu-central-1a/{}", instance(node))
}

pub(super) fn instance(node: usize) -> String {
    format!("i-{node:017x}")
}

fn refused(message: &str) -> Option<DeviceError> {
    Some(DeviceError::Failed { said: message.to_owned() })
}

/// The error of an agent for an answer without instances, whatever the reason.
const NOT_FOUND: &str = "the instance does not exist (InvalidInstanceID.NotFound)";

fn not_found() -> Option<DeviceError> {
    refused(NOT_FOUND)
}

/// Whether the error means that no such instance was found.
pub(super) fn is_not_found(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Failed { said } if said == NOT_FOUND)
}

impl Provider {
    pub(super) const fn new(behind: Duration) -> Self {
        Self { behind, stops: Mutex::new(Vec::new()) }
    }

    /// Ends the disturbances: its copies are current, and no stop is under way.
    pub(super) fn heal(&self) {
        self.stops.lock().clear();
    }

    /// Whether a stop was under way at that moment.
    fn stops_at(&self, then: Duration) -> bool {
        self.stops.lock().iter().any(|(from, until)| (*from..*until).contains(&then))
    }
}

impl World {
    /// Another client terminates the instance of a node.
    pub(super) fn terminate(&self, node: usize) {
        self.power_off(node);
        let now = self.checker.now();
        self.with_machine(node, |machine| machine.terminated = machine.terminated.or(Some(now)));
        self.checker.instance_is_gone(&self.node(node));
    }

    /// Another client starts a stopped instance.
    pub(super) async fn start_again(self: &Arc<Self>, node: usize) {
        if !self.has_power(node) {
            self.checker.probe("another actor started an instance that was stopped");
            self.power_on(node).await;
        }
    }
}

impl Device {
    /// The result of a request to a provider that behaves as documented.
    pub(super) async fn execute_at_provider(
        self: &Arc<Self>,
        provider: &Provider,
        world: &Arc<World>,
        act: Act,
        (wrong, number): (Option<Malfunction>, u64),
    ) -> Result<Power, Option<DeviceError>> {
        let now = world.checker.now();
        match (wrong, act) {
            (Some(Malfunction::RegionLost), _) => {
                world.checker.probe("the region of a provider was lost");
                Err(match now.as_secs() / STAYS % 3 {
                    0 => None,
                    1 => Some(DeviceError::Unreachable { said: "could not connect to the endpoint".to_owned() }),
                    _ => not_found(),
                })
            }
            (Some(Malfunction::Throttles), _) if !number.is_multiple_of(4) => {
                world.checker.probe("a provider limited the rate of requests");
                Err(Some(DeviceError::Throttled { said: "RequestLimitExceeded".to_owned() }))
            }
            (_, Act::Look) => self.described(provider, world, now),
            (_, Act::On) if world.was_terminated(self.node(), now) || provider.stops_at(now) => {
                Err(refused("the instance is not in a state from which it can be started (IncorrectInstanceState)"))
            }
            (_, Act::On) => {
                self.switch_machine(world, self.node(), act);
                Ok(Power::Unknown)
            }
            (_, Act::Off) if !world.has_power(self.node()) => self.described(provider, world, now),
            (wrong, Act::Off) => {
                let takes = match wrong {
                    Some(Malfunction::StopsSlowly(seconds)) => Duration::from_secs(seconds),
                    _ => Duration::from_secs(1 + self.chance().below(STOPS_WITHIN, self.name(), "stops", number)),
                };
                if !provider.stops_at(now) {
                    provider.stops.lock().push((now, now + takes));
                    let message = "a provider stopped an instance";
                    self.act_after(world, (self.node(), act), (takes.as_secs(), message));
                }
                tokio::time::sleep(takes).await;
                self.described(provider, world, world.checker.now())
            }
        }
    }

    /// The state that one of its copies shows.
    fn described(&self, provider: &Provider, world: &World, now: Duration) -> Result<Power, Option<DeviceError>> {
        let node = self.node();
        // One copy answers a client for a while.
        let copy = self.chance().below(COPIES, self.name(), "copy", now.as_secs() / STAYS);
        let most = u64::try_from(provider.behind.as_millis()).unwrap_or(0) + 1;
        let by = match self.is_healed() || copy == 0 {
            true => 0,
            false => self.chance().below(most, self.name(), "behind", copy),
        };
        let then = now.saturating_sub(Duration::from_millis(by));
        if world.was_terminated(node, then) {
            return Ok(Power::Gone);
        }
        match world.had_power(node, then) {
            None => Err(not_found()),
            Some(true) if provider.stops_at(then) => Ok(Power::Unknown),
            Some(true) => Ok(Power::On),
            Some(false) => Ok(Power::Off),
        }
    }
}
