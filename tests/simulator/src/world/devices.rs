//! Fence devices of a world, and the wire on which a process under test reaches them.
//!
//! Every node has one, `bmc-N` (`ec2-N` where a provider switches instances), and a second one, `pdu-N`, where the plan
//! has a backup. A device applies an order to the power of its machine, or what its malfunction makes of the order; its
//! answer may differ from what it did. The checker records both the answer and the true state.
//!
//! A request travels for a moment. If its sender dies meanwhile, the request is lost. After that the device carries it
//! out, even if late.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{BoxFuture, pending};
use parking_lot::Mutex;
use pod_safety_shared::clock::Spawner;
use pod_safety_shared::transport::{Act, Answer, DeviceError, Driver, FenceTransport, Identity, Order, Power};

use super::host::Host;
use super::provider::{self, Provider};
use super::run::World;
use crate::campaign::Malfunction;
use crate::chance::Chance;
use crate::checker::{Answered, Tone, Touched};

/// The parameter by which an order names its device.
pub(super) const HOST: &str = "host";
/// The parameter by which it names an instance.
pub(super) const PLUG: &str = "plug";
/// How long an order travels, and how long a device takes to answer, in milliseconds at the most.
const TRAVELS: u64 = 400;
const THINKS: u64 = 1_500;

/// How many status checks prove a machine off.
const STATUS_CHECKS: u32 = 2;

fn unreachable() -> DeviceError {
    DeviceError::Unreachable { said: "no route to host".to_owned() }
}

/// The device of one node.
pub(crate) struct Device {
    name: String,
    node: usize,
    /// Which power supply of the machine it switches; `None`: the machine.
    outlet: Option<usize>,
    /// Whether it reports which machine it reaches.
    tells: bool,
    /// It belongs to a provider, and the machine is one of its instances.
    provider: Option<Provider>,
    host: Arc<Host>,
    chance: Chance,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Its malfunction, and until when.
    wrong: Option<(Malfunction, Duration)>,
    /// How many requests it got.
    asked: u64,
    /// How often it reported off during its present malfunction.
    said_off: u32,
    /// How often it was repaired: late acts from before are not carried out.
    healed: u32,
}

impl Device {
    pub(super) fn new(
        world: &World,
        name: &str,
        (node, outlet): (usize, Option<usize>),
        tells: bool,
        provider: Option<Provider>,
    ) -> Arc<Self> {
        let chance = world.chance.part(name, 0);
        let host = Host::start(name, chance, &world.checker);
        let (name, state) = (name.to_owned(), Mutex::default());
        Arc::new(Self { name, node, outlet, tells, provider, host, chance, state })
    }

    pub(super) const fn chance(&self) -> Chance {
        self.chance
    }

    pub(super) fn is_healed(&self) -> bool {
        self.state.lock().healed > 0
    }

    /// Whether it is the first device of its node, which is the one that fails.
    pub(super) fn is_first_of(&self, node: usize) -> bool {
        self.node == node && (self.provider.is_some() || self.name.starts_with("bmc-"))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn node(&self) -> usize {
        self.node
    }

    /// Begins a malfunction that lasts until `until`.
    pub(super) fn malfunctions(&self, how: Malfunction, until: Duration) {
        let mut state = self.state.lock();
        (state.wrong, state.said_off) = (Some((how, until)), 0);
    }

    /// Ends the malfunction, and cancels its late acts.
    pub(super) fn heal(&self) {
        let mut state = self.state.lock();
        state.wrong = None;
        state.healed += 1;
        drop(state);
        self.provider.iter().for_each(Provider::heal);
    }

    /// The provider, while it keeps to its documentation.
    fn documented(&self, now: Duration) -> Option<&Provider> {
        let keeps = matches!(
            self.malfunction(now),
            None | Some(Malfunction::Throttles | Malfunction::RegionLost | Malfunction::StopsSlowly(_))
        );
        self.provider.as_ref().filter(|_| keeps)
    }

    fn malfunction(&self, now: Duration) -> Option<Malfunction> {
        self.state.lock().wrong.filter(|(_, until)| now < *until).map(|(how, _)| how)
    }

    fn draw(&self, purpose: &str, most: u64) -> Duration {
        let requests = self.state.lock().asked;
        Duration::from_millis(50 + self.chance.below(most, &self.name, purpose, requests))
    }

    /// Carries out an order, from its sending on.
    pub(super) async fn carry_out(
        self: Arc<Self>,
        world: Arc<World>,
        caller: String,
        order: Order,
    ) -> Result<Answer, DeviceError> {
        let number = {
            let mut state = self.state.lock();
            state.asked += 1;
            state.asked
        };
        let ends = world.checker.now() + order.within;
        tokio::time::sleep(self.draw("travels", TRAVELS)).await;
        let touched = Touched { caller, device: self.name.clone(), node: order.machine.node.to_string() };
        if order.act != Act::Look {
            world.checker.record_order(&touched, order.act);
        }
        let (sender, answer) = oneshot::channel();
        let (device, within) = (Arc::clone(&self), order.within);
        let acting = Arc::clone(&world);
        self.host.spawn(
            "device",
            Box::pin(async move {
                tokio::time::sleep(device.draw("thinks", THINKS)).await;
                // The sender has given up by then, and the process that it started is killed.
                if acting.checker.now() >= ends {
                    return;
                }
                let result = device.execute(&acting, &order, number).await;
                drop(sender.send(device.record_answer(&acting, &touched, &order, result).await));
            }),
        );
        let remaining = ends.saturating_sub(world.checker.now());
        match tokio::time::timeout(remaining, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(oneshot::Canceled)) | Err(_) => Err(DeviceError::TimedOut { after: within }),
        }
    }

    /// Which machine it reaches.
    fn reaches(&self, now: Duration) -> usize {
        match self.malfunction(now) {
            Some(Malfunction::WrongMachine(machine)) => machine,
            _ => self.node,
        }
    }

    /// Applies a request. Returns the power state that it reports, or why it reports none.
    async fn execute(
        self: &Arc<Self>,
        world: &Arc<World>,
        order: &Order,
        number: u64,
    ) -> Result<Power, Option<DeviceError>> {
        let now = world.checker.now();
        let (wrong, machine) = (self.malfunction(now), self.reaches(now));
        if let Some(provider) = self.documented(now) {
            return self.execute_at_provider(provider, world, order.act, (wrong, number)).await;
        }
        let reads = |machine| {
            let on = match self.outlet {
                None => world.has_power(machine),
                Some(outlet) => world.outlet_is_on(machine, outlet),
            };
            if on { Power::On } else { Power::Off }
        };
        let stranger = machine != self.node && self.tells;
        match (wrong, order.act) {
            // The last three are those of providers.
            (
                Some(
                    Malfunction::Unreachable
                    | Malfunction::Throttles
                    | Malfunction::RegionLost
                    | Malfunction::StopsSlowly(_),
                ),
                _,
            ) => Err(Some(unreachable())),
            (Some(Malfunction::DiesWithIt), _) if self.state.lock().said_off >= STATUS_CHECKS => {
                Err(Some(unreachable()))
            }
            (Some(Malfunction::DiesWithIt), Act::Look) => {
                let power = reads(machine);
                self.state.lock().said_off += u32::from(power == Power::Off);
                Ok(power)
            }
            (Some(Malfunction::Silent), _) => Err(None),
            (Some(Malfunction::StaleOff), _) => Ok(Power::Off),
            (Some(Malfunction::Flaps), _) => Ok(if number.is_multiple_of(2) { Power::Off } else { Power::On }),
            (_, Act::Look) => Ok(reads(machine)),
            // The answer of a device that reaches another machine is not what the malfunction is about.
            _ if stranger => Ok(reads(machine)),
            (Some(Malfunction::AcksOnly), Act::Off | Act::On) => Ok(Power::Unknown),
            (Some(Malfunction::LateAfterFailure(seconds)), act) => {
                let message = "a device acted after it had said that it failed";
                self.act_after(world, (machine, act), (seconds, message));
                Err(Some(DeviceError::Failed { said: "it cannot be done now".to_owned() }))
            }
            (Some(Malfunction::DoneButSilent), act) => {
                self.switch_machine(world, machine, act);
                Err(None)
            }
            (None | Some(Malfunction::WrongMachine(_) | Malfunction::DiesWithIt), act) => {
                self.switch_machine(world, machine, act);
                Ok(reads(machine))
            }
        }
    }

    /// Records its answer in the checker, which knows the true state.
    async fn record_answer(
        &self,
        world: &Arc<World>,
        touched: &Touched,
        order: &Order,
        said: Result<Power, Option<DeviceError>>,
    ) -> Result<Answer, DeviceError> {
        let power = match said {
            Ok(power) => power,
            Err(Some(error)) => return Err(error),
            Err(None) => return pending().await,
        };
        let reached = self.reaches(world.checker.now());
        let identity = match self.tells && !order.machine.system_uuid.is_empty() {
            false => Identity::Unknown,
            true if *order.machine.system_uuid == *world.node(reached) => Identity::Match,
            true => Identity::Mismatch { found: world.node(reached) },
        };
        if order.act == Act::Look {
            let is_on = world.has_power(self.node);
            let answered = Answered {
                power,
                identity: identity.clone(),
                is_on,
                reached: reached == self.node,
                documented: self.documented(world.checker.now()).is_some(),
            };
            world.checker.record_answer(touched, &answered);
        }
        Ok(Answer::new(power, identity, String::new()))
    }

    pub(super) fn switch_machine(&self, world: &Arc<World>, machine: usize, act: Act) {
        let (name, node) = (&self.name, world.node(machine));
        match act {
            Act::Off | Act::On if self.outlet.is_some() => self.switch_outlet(world, machine, act),
            Act::Off => {
                world.checker.announce(Tone::Other, format!("{name} switches {node} off"));
                world.power_off(machine);
            }
            Act::On => self.switch_on(world, machine),
            Act::Look => {}
        }
    }

    /// Switches one of two power supplies: the machine runs while the other one has power.
    fn switch_outlet(&self, world: &Arc<World>, machine: usize, act: Act) {
        let (name, node, outlet) = (&self.name, world.node(machine), self.outlet.unwrap_or(0));
        world.set_outlet(machine, outlet, act == Act::On);
        let other = world.outlet_is_on(machine, 1 - outlet.min(1));
        match act {
            Act::Off if other => world.checker.probe("one of two supplies was switched off, and the machine ran on"),
            Act::Off => {
                world.checker.announce(Tone::Other, format!("{name} switches {node} off: it was its last supply"));
                world.checker.probe("a machine lost both of its supplies");
                world.power_off(machine);
            }
            Act::On => self.switch_on(world, machine),
            Act::Look => {}
        }
    }

    fn switch_on(&self, world: &Arc<World>, machine: usize) {
        world.checker.announce(Tone::Other, format!("{} switches {} on", self.name, world.node(machine)));
        let world = Arc::clone(world);
        self.host.spawn("boot", Box::pin(async move { world.power_on(machine).await }));
    }

    /// Acts after so many seconds, unless it is repaired before.
    pub(super) fn act_after(
        self: &Arc<Self>,
        world: &Arc<World>,
        (machine, act): (usize, Act),
        (seconds, told): (u64, &'static str),
    ) {
        let (device, world, healed) = (Arc::clone(self), Arc::clone(world), self.state.lock().healed);
        self.host.spawn(
            "late",
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                if device.state.lock().healed != healed {
                    return;
                }
                world.checker.probe(told);
                device.switch_machine(&world, machine, act);
            }),
        );
    }
}

/// The addresses of machines begin here.
const ADDRESSES: u32 = 0x0a00_0100;

/// The address of a machine.
pub(super) fn address_of(node: usize) -> String {
    Ipv4Addr::from_bits(ADDRESSES + u32::try_from(node).unwrap_or_default()).to_string()
}

fn node_at(address: SocketAddr) -> Option<usize> {
    let IpAddr::V4(address) = address.ip() else { return None };
    usize::try_from(address.to_bits().checked_sub(ADDRESSES)?).ok()
}

/// The connection of one process to the devices.
pub(crate) struct Wire {
    pub(super) world: Arc<World>,
    pub(super) caller: String,
    pub(super) plant: Option<crate::campaign::Plant>,
    /// What a planted bug remembers, by node.
    pub(super) memory: Arc<Mutex<BTreeMap<String, (Duration, Answer)>>>,
}

impl Wire {
    pub(super) fn asks_as_meant(
        &self,
        device: Arc<Device>,
        order: Order,
    ) -> BoxFuture<'static, Result<Answer, DeviceError>> {
        Box::pin(device.carry_out(Arc::clone(&self.world), self.caller.clone(), order))
    }
}

impl FenceTransport for Wire {
    fn check<'a>(
        &'a self,
        _driver: &'a Driver,
        _parameters: &'a BTreeMap<String, pod_safety_shared::transport::Value>,
    ) -> BoxFuture<'a, Result<(), DeviceError>> {
        futures::future::ready(Ok(())).boxed()
    }

    fn carry_out(&self, order: Order) -> BoxFuture<'_, Result<Answer, DeviceError>> {
        let read = |parameter| order.parameters.get(parameter).map(|value| value.reveal().to_owned());
        let (name, plug) = (read(HOST).unwrap_or_default(), read(PLUG));
        let is_it = |device: &&Arc<Device>| match &plug {
            Some(plug) => device.provider.is_some() && provider::instance(device.node) == *plug,
            None => device.name == name,
        };
        let device = self.world.devices.lock().iter().find(is_it).cloned();
        match device {
            Some(device) => self.execute_order(device, order),
            None => {
                let said = format!("there is no device {name}");
                futures::future::ready(Err(DeviceError::Unreachable { said })).boxed()
            }
        }
    }

    /// A machine that runs answers, even without its kubelet, unless it is frozen or cut off completely.
    fn probe_tcp(&self, address: SocketAddr, within: Duration) -> BoxFuture<'_, Result<bool, DeviceError>> {
        let node = node_at(address).map(|number| (number, self.world.node(number)));
        Box::pin(async move {
            tokio::time::sleep(within / 4).await;
            let Some((number, node)) = node else { return Ok(false) };
            let answers = self.world.has_power(number) && !self.world.is_frozen(&node) && !self.world.is_cut(&node);
            self.world.checker.port_answered(&self.caller, &node, answers);
            Ok(answers && !self.is_deaf_to(&node))
        })
    }
}
