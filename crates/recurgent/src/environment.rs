//! Environments: where a program finds the packages it declares.

use lifecycle::execution::{Environment, EnvironmentFault};
use lifecycle::outcome::{Failure, FailureKind};
use lifecycle::program::DependencyManifest;
use lifecycle::request::CallRequest;

/// Gives a program the environment its manifest asks for.
///
/// A program that declares nothing runs on the bare language. Declared packages cannot be installed by
/// this version; the model is told so and may do without them.
pub(crate) fn prepare(
    manifest: &DependencyManifest,
    request: &CallRequest,
) -> Result<Environment, EnvironmentFault> {
    let Some(first) = manifest.dependencies().first() else {
        return Ok(Environment { id: None, manifest: manifest.clone() });
    };
    let message = format!(
        "`{}` is declared, and this version cannot install packages; use the standard library only, with no dependencies",
        first.name
    );
    let failure = Failure::new(FailureKind::DependencyResolutionFailed, message)
        .with("specialist_role", request.role.as_str())
        .with("method_name", request.method.as_str())
        .with("dependency_name", first.name.as_str());
    Err(EnvironmentFault::Unresolvable(Box::new(failure)))
}
