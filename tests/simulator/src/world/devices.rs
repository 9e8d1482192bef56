//! Fence devices of a world, and the wire on which a process under test reaches them.
//!
//! Every node has one, `bmc-N` (`ec2-N` where a provider switches instances), and a second one, `pdu-N`, where the plan has a
//! backup. A device
//! does what it is told to the power of its machine, or what its malfunction makes of that; what
//! it says is another thing. The checker is told both: what was said, and what was so.
//!
//! What is asked travels for a moment in the hands of whoever asks: whoever dies meanwhile has
//! asked nothing. From then on it is the device's, and late acts are the device's, too.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{BoxFuture, pending};
use parking_lot::Mutex;
use pod_safety_shared::clock::Spawner;
use pod_safety_shared::transport::{
    Act, Answer, DeviceError, Driver, FenceTransport, Identity, Order, Power,
};

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
/// How long an order travels, and how long a device thinks, in milliseconds at the most.
const TRAVELS: u64 = 400;
const THINKS: u64 = 1_500;

/// So many looks prove a machine off.
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
    /// Whether it says which machine it reaches.
    tells: bool,
    /// It is a provider's, and the machine one of its instances.
    provider: Option<Provider>,
    host: Arc<Host>,
    chance: Chance,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What is wrong with it, and until when.
    wrong: Option<(Malfunction, Duration)>,
    /// How often it was asked.
    asked: u64,
    /// How often it said off since something is wrong with it.
    said_off: u32,
    /// How often it was healed: what is late then is not done any more.
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

    /// Whether it is the first of its node, which fails and lies.
    pub(super) fn is_first_of(&self, node: usize) -> bool {
        self.node == node && (self.provider.is_some() || self.name.starts_with("bmc-"))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn node(&self) -> usize {
        self.node
    }

    /// From now on something is wrong with it, for so long.
    pub(super) fn malfunctions(&self, how: Malfunction, until: Duration) {
        let mut state = self.state.lock();
        (state.wrong, state.said_off) = (Some((how, until)), 0);
    }

    /// It is well, and what it would have done late it does not do.
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
        let asked = self.state.lock().asked;
        Duration::from_millis(50 + self.chance.below(most, &self.name, purpose, asked))
    }

    /// What an order comes to, from when it is on its way.
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
                // Whoever asked has given it up by then, and what was started is killed.
                if acting.checker.now() >= ends {
                    return;
                }
                let said = device.execute(&acting, &order, number).await;
                drop(sender.send(device.record_answer(&acting, &touched, &order, said).await));
            }),
        );
        let left = ends.saturating_sub(world.checker.now());
        match tokio::time::timeout(left, answer).await {
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

    /// Does what it does; gives back what it says of the power, or why it says nothing.
    async fn execute(
        self: &Arc<Self>,
        world: &Arc<World>,
        order: &Order,
        number: u64,
    ) -> Result<Power, Option<DeviceError>> {
        let now = world.checker.now();
        let (wrong, machine) = (self.malfunction(now), self.reaches(now));
        if let Some(provider) = self.documented(now) {
            return self.provider_does(provider, world, order.act, (wrong, number)).await;
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
                let said = reads(machine);
                self.state.lock().said_off += u32::from(said == Power::Off);
                Ok(said)
            }
            (Some(Malfunction::Silent), _) => Err(None),
            (Some(Malfunction::StaleOff), _) => Ok(Power::Off),
            (Some(Malfunction::Flaps), _) => {
                Ok(if number.is_multiple_of(2) { Power::Off } else { Power::On })
            }
            (_, Act::Look) => Ok(reads(machine)),
            // Nobody meant a stranger.
            _ if stranger => Ok(reads(machine)),
            (Some(Malfunction::AcksOnly), Act::Off | Act::On) => Ok(Power::Unknown),
            (Some(Malfunction::LateAfterFailure(seconds)), act) => {
                let told = "a device acted after it had said that it failed";
                self.act_after(world, (machine, act), (seconds, told));
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

    /// Its answer, of which the checker knows whether it is true.
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
            Act::On => {
                world.checker.announce(Tone::Other, format!("{name} switches {node} on"));
                let world = Arc::clone(world);
                self.host.spawn("boot", Box::pin(async move { world.power_on(machine).await }));
            }
            Act::Look => {}
        }
    }

    /// One supply of two: the machine runs while the other one has power.
    fn switch_outlet(&self, world: &Arc<World>, machine: usize, act: Act) {
        let (name, node, outlet) = (&self.name, world.node(machine), self.outlet.unwrap_or(0));
        world.set_outlet(machine, outlet, act == Act::On);
        let other = world.outlet_is_on(machine, 1 - outlet.min(1));
        match act {
            Act::Off if other => {
                world.checker.probe("one of two supplies was switched off, and the machine ran on")
            }
            Act::Off => {
                world
                    .checker
                    .announce(Tone::Other, format!("{name} switches {node} off: it was its last supply"));
                world.checker.probe("a machine lost both of its supplies");
                world.power_off(machine);
            }
            Act::On => {
                world.checker.announce(Tone::Other, format!("{name} switches {node} on"));
                let world = Arc::clone(world);
                self.host.spawn("boot", Box::pin(async move { world.power_on(machine).await }));
            }
            Act::Look => {}
        }
    }

    /// Acts after so many seconds, if it is not healed before.
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

/// Where a machine is reached.
pub(super) fn address_of(node: usize) -> String {
    Ipv4Addr::from_bits(ADDRESSES + u32::try_from(node).unwrap_or_default()).to_string()
}

fn node_at(address: SocketAddr) -> Option<usize> {
    let IpAddr::V4(address) = address.ip() else { return None };
    usize::try_from(address.to_bits().checked_sub(ADDRESSES)?).ok()
}

/// The way of one process to the devices.
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

    /// A machine that runs answers, whatever became of its kubelet, unless it stands still or is cut off from everybody.
    fn probe_tcp(&self, address: SocketAddr, within: Duration) -> BoxFuture<'_, Result<bool, DeviceError>> {
        let node = node_at(address).map(|number| (number, self.world.node(number)));
        Box::pin(async move {
            tokio::time::sleep(within / 4).await;
            let Some((number, node)) = node else { return Ok(false) };
            let answers =
                self.world.has_power(number) && !self.world.is_frozen(&node) && !self.world.is_cut(&node);
            self.world.checker.port_answered(&self.caller, &node, answers);
            Ok(answers && !self.is_deaf_to(&node))
        })
    }
}
