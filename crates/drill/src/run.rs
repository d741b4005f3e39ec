//! Running a script: events in order, virtual time between them.
//!
//! The clock moves to the next timer of the stack or event of the script; after every move the stack runs until nothing
//! is left to do at that moment, and a blocked call is attempted again. Nothing here sleeps or reads a real clock, and
//! there is one thread: a run is a function of the script and the options.

mod calls;
mod connections;
mod expect;
mod inject;
mod settings;
mod values;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::task::Poll;
use std::time::Duration;

use ::stack::Architecture;
use observe::{CounterSnapshot, Time};
use posix::{LowestFree, Sockets};
use sync::Real;
use tcp::Profile;

use crate::code::Environment;
use crate::error::ScriptError;
use crate::family::Family;
use crate::host::{Crossing, Host, HostConfig, START};
use crate::script::{Action, Event, Nanos, Script, When};
use crate::shell::{self, Effect};

use calls::Pending;
use connections::{Connection, UnderTest};
use settings::ScriptSettings;

/// Most open descriptors of a script: Linux's default limit for a process.
const MOST_DESCRIPTORS: i32 = 1024;

/// How scripts are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The process architecture.
    pub arch: Architecture,
    /// TCP's parameters before the script changes any.
    pub profile: Profile,
    /// Knobs set before the script's own, by their sysctls' names.
    pub knobs: Vec<(String, String)>,
    /// The address family of a script that does not declare one.
    pub family: Family,
    /// MTU of the link of a script that does not set it, bytes, 68 to 65 535; `None`: the one usual for the IP version.
    pub mtu: Option<u16>,
    /// Directory of the script, where the files that its shell lines run are searched for. `None`: it has none.
    pub directory: Option<PathBuf>,
    /// TCP's fast lane is on, as usual; see [`tcp::Config::fast_lane`].
    pub fast_lane: bool,
}

impl Options {
    /// The architecture under Linux's profile.
    pub fn new(arch: Architecture) -> Options {
        Options {
            arch,
            profile: Profile::Linux,
            knobs: Vec::new(),
            family: Family::V4,
            mtu: None,
            directory: None,
            fast_lane: true,
        }
    }
}

/// A script that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Line and sentence.
    pub error: ScriptError,
    /// The frames on the link until then.
    pub trace: Vec<Crossing>,
}

/// Runs `script`; returns the frames on the link.
///
/// # Errors
/// The first deviation from the script.
pub fn run(script: &Script, options: &Options) -> Result<Vec<Crossing>, Box<Failure>> {
    counted(script, options).map(|(trace, _)| trace)
}

/// As [`run`], with the stack's counters at the end.
///
/// # Errors
/// As [`run`].
pub fn counted(script: &Script, options: &Options) -> Result<(Vec<Crossing>, CounterSnapshot), Box<Failure>> {
    let mut runner = match Runner::new(script, options) {
        Ok(runner) => runner,
        Err(error) => return Err(Box::new(Failure { error, trace: Vec::new() })),
    };
    let result = script.events.iter().try_for_each(|event| runner.event(event)).and_then(|()| runner.finish());
    let trace = std::mem::take(&mut runner.host.trace);
    match result {
        Ok(()) => Ok((trace, runner.host.stack.stats().counters)),
        Err(error) => Err(Box::new(Failure { error, trace })),
    }
}

type Ran<T> = Result<T, ScriptError>;

/// Tolerance of times in nanoseconds, for an event `gap` after the one before.
fn tolerance(settings: &ScriptSettings, gap: Nanos) -> Nanos {
    // An eighth of the gap.
    settings.tolerance.max(gap / 8)
}

struct Runner {
    settings: ScriptSettings,
    /// Directory of the script.
    directory: Option<PathBuf>,
    host: Host,
    sockets: Sockets<Real>,
    connections: Vec<Connection>,
    under_test: UnderTest,
    /// Descriptors of the script, mapped to those of the socket layer.
    fds: HashMap<i64, i32>,
    /// Positions written and read on each descriptor, for the pattern of the bytes.
    streams: HashMap<i32, values::Stream>,
    pending: Option<Pending>,
    environment: Environment,
    /// Script time of the event before.
    last: Nanos,
    /// Ports for peers that connect.
    next_port: u16,
    /// The line that is being run.
    line: u32,
}

impl Runner {
    fn new(script: &Script, options: &Options) -> Ran<Runner> {
        let settings = ScriptSettings::read(&script.options, options.family, options.mtu)?;
        let mut tcp = options.profile.config();
        // Scripts use `tcpi_busy_time` and related fields.
        tcp.measure_limits = true;
        tcp.fast_lane = options.fast_lane;
        if options.profile == Profile::Linux {
            // Linux's value, which scripts rely on; the stack's is that of RFC 7413.
            let knob = ("tcp_fastopen_blackhole_timeout_sec", "0");
            tcp::knobs::set(&mut tcp, knob.0, knob.1).map_err(|error| ScriptError::new(0, error.to_string()))?;
        }
        for (name, value) in &options.knobs {
            tcp::knobs::set(&mut tcp, name, value).map_err(|error| ScriptError::new(0, error.to_string()))?;
        }
        // Shell lines before the first event configure the machine before it is built.
        let mut effects = Vec::new();
        for event in &script.events {
            let Action::Shell(text) = &event.action else { break };
            effects.extend(shell::read(text, event.line, options.directory.as_deref())?);
        }
        for (line, effect) in &effects {
            if let Effect::Knob(name, value) = effect {
                tcp::knobs::set(&mut tcp, name, value).map_err(|error| knob_error(*line, &error))?;
            }
        }
        let mtu = settings.mtu;
        let terms = HostConfig { arch: options.arch, tcp, addresses: settings.addresses, mtu, super_segments: false };
        let host = Host::new(terms).map_err(|error| ScriptError::new(0, error.to_string()))?;
        let sockets = Sockets::new(host.stack.clone(), LowestFree::<Real>::new(3, MOST_DESCRIPTORS));
        let mut runner = Runner {
            settings,
            directory: options.directory.clone(),
            host,
            sockets,
            connections: Vec::new(),
            under_test: UnderTest::Nothing,
            fds: HashMap::new(),
            streams: HashMap::new(),
            pending: None,
            environment: Environment::default(),
            last: 0,
            next_port: 32768,
            line: 0,
        };
        for (line, effect) in effects {
            runner.effect(line, effect, false)?;
        }
        runner.step();
        Ok(runner)
    }

    fn error(&self, message: impl Into<String>) -> ScriptError {
        ScriptError::new(self.line, message)
    }

    fn event(&mut self, event: &Event) -> Ran<()> {
        self.line = event.line;
        let first = self.connections.is_empty() && self.fds.is_empty();
        let (from, to) = self.span(event.when);
        match &event.action {
            // The leading ones were processed before.
            Action::Shell(_) if first && event.when == When::Relative(0) && self.last == 0 => return Ok(()),
            Action::Packet(packet) => {
                let at = match packet.direction {
                    crate::script::Direction::Inbound => {
                        self.advance_to(self.live(from));
                        self.inject(packet)?;
                        from
                    }
                    crate::script::Direction::Outbound => self.expect(packet, event.when, from, to)?,
                };
                self.last = at;
                return Ok(());
            }
            Action::Shell(text) => {
                self.advance_to(self.live(from));
                for (line, effect) in shell::read(text, event.line, self.directory.as_deref())? {
                    self.effect(line, effect, true)?;
                }
            }
            Action::Call(call) => {
                self.await_pending(from)?;
                self.advance_to(self.live(from));
                let end =
                    call.end.map(|end| if matches!(event.when, When::Absolute(_)) { end } else { self.last + end });
                self.call(call, from, end)?;
            }
            Action::Code(block) => {
                self.advance_to(self.live(from));
                self.step();
                if self.pending.as_ref().is_some_and(|pending| pending.outcome.is_some()) {
                    self.settle_pending()?;
                }
                let mut environment = std::mem::take(&mut self.environment);
                let result = environment.run(block, &mut values::Info { runner: self, info: None });
                self.environment = environment;
                result?;
            }
        }
        self.step();
        self.last = from;
        Ok(())
    }

    /// The script times between which an event is due. For `*` the end is not used.
    fn span(&self, when: When) -> (Nanos, Nanos) {
        match when {
            When::Absolute(at) => (at, at),
            When::Relative(gap) => (self.last + gap, self.last + gap),
            When::AbsoluteRange(from, to) => (from, to),
            When::RelativeRange(from, to) => (self.last + from, self.last + to),
            When::Any => (self.last, self.last),
        }
    }

    fn live(&self, script: Nanos) -> Time {
        START + Duration::from_nanos(script.max(0) as u64)
    }

    /// Converts a time to script time.
    fn script_time(&self, at: Time) -> Nanos {
        (at - START).as_nanos() as Nanos
    }

    fn effect(&mut self, line: u32, effect: Effect, running: bool) -> Ran<()> {
        match effect {
            Effect::Knob(name, value) if running => {
                self.host.stack.shared().control().set_knob(&name, &value).map_err(|error| knob_error(line, &error))?;
            }
            Effect::Knob(..) => {}
            Effect::Swallow(on) => self.host.drop_output = on,
            Effect::File(path, len) => self.sockets.make_file(&path, len),
            Effect::Forget => {
                self.host.stack.at_tables(|stack| stack.shared().destinations.forget());
            }
            Effect::Route(route) => self.host.stack.state_route(&route, 0),
            Effect::Unroute(named) if self.host.stack.remove_route(&named).is_none() => {
                return Err(ScriptError::new(line, format!("there is no route {named} that could be deleted")));
            }
            Effect::Unroute(_) => {}
            Effect::Mtu(mtu) => self.host.stack.set_link_mtu(0, mtu.into()),
        }
        Ok(())
    }

    /// Runs everything that is due now, blocked calls included.
    fn step(&mut self) {
        loop {
            let busy = self.host.settle();
            self.sockets.update_reports();
            let finished = self.retry_pending();
            if !busy && !finished {
                return;
            }
        }
    }

    /// Moves the clock to `target`, with a stop at every deadline.
    fn advance_to(&mut self, target: Time) {
        self.step();
        while self.host.now() < target {
            let next = self.next_stop(target);
            self.host.set_time(next);
            self.step();
        }
    }

    /// The next deadline, later than now and not after `target`.
    fn next_stop(&self, target: Time) -> Time {
        let mut next = self.host.next_deadline().min(target);
        if let Some(deadline) = self.pending.as_ref().and_then(|pending| pending.deadline) {
            next = next.min(deadline);
        }
        // A timer that expired with nothing due must not stop the clock.
        next.max(self.host.now() + Duration::from_micros(1))
    }

    /// Attempts the blocked call again, if there is one.
    fn retry_pending(&mut self) -> bool {
        let Some(mut pending) = self.pending.take() else { return false };
        if pending.outcome.is_some() {
            self.pending = Some(pending);
            return false;
        }
        let expired = pending.deadline.is_some_and(|deadline| self.host.now() >= deadline);
        let finished = match (pending.attempt)(&self.sockets, expired) {
            Poll::Ready(outcome) => {
                pending.outcome = Some((outcome, self.host.now()));
                true
            }
            Poll::Pending => false,
        };
        self.pending = Some(pending);
        finished
    }

    /// The blocked call must return before the next call begins, at `due`.
    fn await_pending(&mut self, due: Nanos) -> Ran<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let latest = due.max(pending.end) + tolerance(&self.settings, pending.end - pending.from);
        let latest = self.live(latest);
        self.step();
        while self.pending.as_ref().is_some_and(|pending| pending.outcome.is_none()) && self.host.now() < latest {
            let next = self.next_stop(latest);
            self.host.set_time(next);
            self.step();
        }
        self.settle_pending()
    }

    /// The end of the script: nothing may be left, and the stack must come to rest.
    fn finish(&mut self) -> Ran<()> {
        self.await_pending(self.last)?;
        self.step();
        if self.settings.no_leftovers {
            self.leftovers()?;
        }
        self.reset_all();
        for fd in self.sockets.open_fds() {
            // Every descriptor in the list is open.
            let _ = self.sockets.close_at_once(fd);
        }
        self.host.settle();
        if !self.host.stack.is_quiescent() {
            return Err(self.error("work is left in the stack after the end of the script"));
        }
        Ok(())
    }

    /// The address that `...` means in `bind`, or in `connect` and similar calls.
    fn default_address(&self, remote: bool) -> SocketAddr {
        let addresses = &self.settings.addresses;
        let (ip, port) = match remote {
            true => (addresses.remote, self.settings.connect_port),
            false => (addresses.local, self.settings.bind_port),
        };
        match ip {
            IpAddr::V4(v4) if self.settings.mapped => SocketAddr::new(v4.to_ipv6_mapped().into(), port),
            ip => SocketAddr::new(ip, port),
        }
    }
}

fn knob_error(line: u32, error: &impl std::fmt::Display) -> ScriptError {
    ScriptError::unsupported(line, error)
}
