//! Command that sets the options of a worker.

use millrace_forward::{ErrorLimiter, RateLimit};

use crate::options::Options;
use crate::router::Router;

/// Sets the options. Each worker gets an equal part of the limits that apply to the whole router.
pub(crate) fn set_options(router: &mut Router, options: Options) {
    let workers = router.handover.as_ref().map_or(1, |handover| handover.workers() as u32);
    let share = |all: u32| all.div_ceil(workers);
    let options = Options { flows_max: share(options.flows_max), ..options };
    let limit = RateLimit { per_second: share(options.icmp_rate), burst: share(options.icmp_burst) };
    router.errors.limiter = ErrorLimiter::new(limit);
    router.punt.control_plane.set(&options.control_plane, workers);
    router.classifier.set_options(&options, router.seed);
    router.gates.plugins_mut().instances_mut().set_limits(options.instances);
    router.options = options;
}
