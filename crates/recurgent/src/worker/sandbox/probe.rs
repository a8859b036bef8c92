//! Finds out how strongly this machine can contain processes, by containing one.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use super::{Layer, Layers, Sandbox, SandboxAccess, Tier, VersionMount};

/// A program that every system has and that does nothing.
const NOTHING: &str = "/bin/true";

/// What the probe found.
#[derive(Debug, Clone)]
pub struct Reached {
    /// The strongest tier that contained a process.
    pub tier: Tier,
    /// The layers workers run in.
    pub layers: Layers,
    /// Layers that are not available, and why.
    pub missing: Vec<(Layer, String)>,
    /// Whether workers of different agents may come from one zygote: only where the kernel keeps a worker
    /// from signalling processes outside its domain.
    pub(crate) shares_zygotes: bool,
    /// Whether a layer of the weakest tier was wanted and is not available.
    uncontained: bool,
}

impl Reached {
    /// Whether containment is at least this strong. Without resource limits no tier is reached.
    pub fn reaches(&self, tier: Tier) -> bool {
        self.tier >= tier && !self.uncontained
    }

    /// The tier's name, or `none`.
    pub fn name(&self) -> &'static str {
        if self.uncontained { "none" } else { self.tier.name() }
    }
}

/// Finds the strongest set of the wanted layers that contains a process.
pub(super) fn strongest(sandbox: &Sandbox) -> Reached {
    let mut layers = Layers::NONE;
    let mut missing = Vec::new();
    // Tried one by one only if not all work together, to find out which do not.
    let all_hold = contain(sandbox, sandbox.wanted).is_ok();
    for layer in Layer::ALL {
        if !sandbox.wanted.has(layer) {
            missing.push((layer, "it is switched off".to_owned()));
            continue;
        }
        let tried = if all_hold { Ok(()) } else { contain(sandbox, layers.with(layer)) };
        match tried {
            Ok(()) => layers = layers.with(layer),
            Err(error) => missing.push((layer, explain(layer, &error))),
        }
    }
    let mut tier = Tier::of(layers);
    if layers.has(Layer::Landlock) && !scopes_signals() {
        missing.push((
            Layer::Landlock,
            "signals are not restricted; use Linux 6.12 or later".to_owned(),
        ));
        // With namespaces it still protects files; it only does not count towards the tier.
        tier = Tier::of(layers.without(Layer::Landlock));
        if !layers.has(Layer::Namespaces) {
            layers = layers.without(Layer::Landlock);
        }
    }
    // At the weaker tiers separate zygotes would not separate agents.
    let shares_zygotes = tier != Tier::Namespaces;
    let uncontained = sandbox.wanted.has(Layer::Limits) && !layers.has(Layer::Limits);
    Reached { tier, layers, missing, shares_zygotes, uncontained }
}

/// Whether the kernel mounts a layer over this directory for a sandboxed process.
pub(super) fn mounts_layer(sandbox: &Sandbox, directory: &Path) -> bool {
    let layers = sandbox.reached().layers;
    let workspace_version = VersionMount { source: directory.to_owned(), is_layer: true };
    let access = SandboxAccess {
        workspace: Some(directory.to_owned()),
        workspace_version: Some(workspace_version),
        ..SandboxAccess::default()
    };
    layers.has(Layer::Namespaces) && contain_with(sandbox, layers, access).is_ok()
}

fn scopes_signals() -> bool {
    super::landlock::scopes_signals()
}

/// Runs a tiny process inside these layers, sealed as a worker is.
fn contain(sandbox: &Sandbox, layers: Layers) -> io::Result<()> {
    contain_with(sandbox, layers, SandboxAccess::default())
}

fn contain_with(sandbox: &Sandbox, layers: Layers, access: SandboxAccess) -> io::Result<()> {
    use std::os::fd::OwnedFd;
    if layers.has(Layer::Namespaces)
        && rustix::process::geteuid().is_root()
        && !super::user::may_mount()
    {
        return Err(io::Error::other("root has no right to mount (CAP_SYS_ADMIN)"));
    }
    let mut zygote_sandbox = sandbox.zygote_sandbox_with(layers, access)?;
    let worker_resources = zygote_sandbox.worker_resources()?;
    let ruleset = worker_resources.ruleset().map(OwnedFd::try_clone).transpose()?;
    let seal = zygote_sandbox.take_seal();
    let mut command = Command::new(NOTHING);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let spawn_handshake =
        sandbox.confine_as(&mut command, &zygote_sandbox, Some((seal, ruleset)))?;
    let spawned = command.spawn();
    drop(command); // closes the child's end of the pipe on which its number is sent
    let inside = spawn_handshake.is_another().then(|| spawn_handshake.pid(None)).flatten();
    let outer = spawned.and_then(|mut child| child.wait());
    let inner = inside.map(|pid| {
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())
            .map(|ended| ended.is_some_and(|(_, status)| status.exit_status() == Some(0)))
    });
    let ended_well = |status: ExitStatus| status.success();
    match (outer.map(ended_well)?, inner.transpose()?) {
        (true, None | Some(true)) => Ok(()),
        (_, _) => Err(io::Error::other("the process that tried it failed")),
    }
}

/// Why a layer is missing, and how to get it.
fn explain(layer: Layer, error: &io::Error) -> String {
    let remedy = match layer {
        Layer::Limits => "raise the limits this process runs under",
        Layer::Identity => "run as an ordinary user, or as root with CAP_SETUID",
        Layer::Seccomp => "use a kernel with seccomp filters",
        Layer::Landlock => "use Linux 5.13 or later with Landlock enabled (lsm=...,landlock)",
        Layer::Namespaces => {
            "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, \
             kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces), \
             or give the container CAP_SYS_ADMIN"
        }
        Layer::Cgroups => {
            "processes are limited one by one. Start it in a group of its own \
             (systemd-run --user --scope -p Delegate=yes recurgent ...), or as root"
        }
    };
    format!("{error}; {remedy}")
}
