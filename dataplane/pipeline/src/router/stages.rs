//! Constructors of the stages. Each stage borrows the parts of the router that it reads and changes.

use crate::classify::Classification;
use crate::egress::dispose::Disposal;
use crate::egress::neighbours::NeighbourResolution;
use crate::egress::queueing::Queueing;
use crate::fast_path::FastPath;
use crate::forward::Forwarder;
use crate::forward::routing::Routing;
use crate::gates::GateRun;
use crate::ingress::Ingress;
use crate::offloaded_flows::OffloadStage;
use crate::punt::PuntStage;
use crate::router::Router;

impl Router {
    /// Returns the receive and parse stages.
    #[inline(always)]
    pub(crate) fn ingress(&mut self) -> Ingress<'_> {
        Ingress {
            ports: &mut self.ports,
            classifier: &mut self.classifier,
            gates: &self.gates,
            fib: &self.forwarding.fib,
            options: &self.options,
            observation: &mut self.observation,
        }
    }

    /// Returns the classify stage.
    #[inline(always)]
    pub(crate) fn classification(&mut self) -> Classification<'_> {
        Classification {
            classifier: &mut self.classifier,
            forwarding: &self.forwarding,
            gates: &mut self.gates,
            ports: &self.ports,
            pending: &self.pending,
            options: &self.options,
            seed: self.seed,
        }
    }

    /// Returns the fast path of known flows.
    #[inline(always)]
    pub(crate) fn fast_path(&mut self) -> FastPath<'_> {
        FastPath {
            classifier: &mut self.classifier,
            gates: &mut self.gates,
            forwarding: &mut self.forwarding,
            ports: &self.ports,
            options: &self.options,
        }
    }

    /// Returns the tables that the forward stage reads.
    #[inline(always)]
    pub(crate) fn forwarder(&mut self) -> Forwarder<'_> {
        Forwarder {
            routing: Routing {
                fib: &self.forwarding.fib,
                filter_routes: self.gates.routes(),
                ports: &self.ports,
            },
            neighbours: &mut self.forwarding.neighbours,
        }
    }

    /// Returns the tables that determine a packet's route, next hop and egress port.
    pub(crate) fn routing(&self) -> Routing<'_> {
        Routing { fib: &self.forwarding.fib, filter_routes: self.gates.routes(), ports: &self.ports }
    }

    /// Returns the gates stage.
    #[inline(always)]
    pub(crate) fn gate_run(&mut self) -> GateRun<'_> {
        GateRun {
            gates: &mut self.gates,
            pool: &self.pool,
            fib: &self.forwarding.fib,
            ports: &mut self.ports,
            observation: &mut self.observation,
            pending: &mut self.pending,
            copies: &mut self.scratch.copies,
        }
    }

    /// Returns the queues of the egress ports.
    #[inline(always)]
    pub(crate) fn queueing(&mut self) -> Queueing<'_> {
        self.disposal().queueing
    }

    /// Returns the dispose stage.
    #[inline(always)]
    pub(crate) fn disposal(&mut self) -> Disposal<'_> {
        self.neighbour_resolution().disposal
    }

    /// Returns the neighbour resolution.
    #[inline(always)]
    pub(crate) fn neighbour_resolution(&mut self) -> NeighbourResolution<'_> {
        let queueing = Queueing {
            pool: &self.pool,
            ports: &mut self.ports,
            gates: &mut self.gates,
            handover: self.handover.as_deref_mut(),
            observation: &mut self.observation,
            scratch: &mut self.scratch.egress,
        };
        let disposal = Disposal {
            queueing,
            options: &self.options,
            forwarding: &mut self.forwarding,
            punt: &mut self.punt,
            errors: &mut self.errors,
            pending: &mut self.pending,
        };
        let (changes, offload) = (&mut self.classifier.changes, self.offload.as_deref_mut());
        NeighbourResolution { disposal, changes, offload }
    }

    /// Returns the punt stage.
    #[inline(always)]
    pub(crate) fn punt_stage(&mut self) -> PuntStage<'_> {
        PuntStage {
            pool: &self.pool,
            ports: &mut self.ports,
            plugins: self.gates.plugins(),
            handover: self.handover.as_deref_mut(),
            observation: &mut self.observation,
            made: &mut self.pending.made,
            punt: &mut self.punt,
        }
    }

    /// Returns the offload stage; `None` without offload.
    #[inline(always)]
    pub(crate) fn offload_stage(&mut self) -> Option<OffloadStage<'_>> {
        Some(OffloadStage {
            offload: self.offload.as_deref_mut()?,
            classifier: &mut self.classifier,
            gates: &mut self.gates,
            forwarding: &mut self.forwarding,
            ports: &self.ports,
            observation: &mut self.observation,
            handover: self.handover.as_deref_mut(),
        })
    }
}
