//! Ledger of the promised shares: admits flows with a deadline, and gives back what they held.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::grant::{Grant, GrantedStage, nanoseconds};
use super::mix::{Mix, terms};
use super::request::{Demand, FlowRequest, Refusal};
use super::resource::Resource;
use super::split::{Budget, Part, Rule, Times, split};

/// Criterion by which a deadline is split.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Criterion {
    /// The same time at each resource (algorithm 1 of section 8).
    Even,
    /// The same free capacity at each resource, in proportion to the weights (section 5; algorithm 2 of
    /// section 8).
    Balance,
    /// Prices by the mix of granted flows. It admits the most flows, if flows differ.
    #[default]
    Mix,
}

/// Resource with the sum of its promised shares.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Account {
    resource: Resource,
    promised: u64,
    flows: usize,
}

impl Account {
    fn free(&self) -> u64 {
        self.resource.capacity.saturating_sub(self.promised)
    }
}

/// Resources, and the deadlines granted to flows. A decision takes time for the resources of the flow, not for
/// the number of granted flows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    criterion: Criterion,
    accounts: BTreeMap<String, Account>,
    flows: BTreeMap<String, Grant>,
    /// Flows that use shares of another flow, by the owner of the shares.
    sharers: BTreeMap<String, BTreeSet<String>>,
    /// Mixes of flows, by the resources that the flows hold.
    mixes: BTreeMap<Vec<String>, Mix>,
}

/// Own work of a request.
struct Demands<'l> {
    names: Vec<&'l str>,
    parts: Vec<Part>,
    budget: Budget,
    blocking: u64,
}

impl Ledger {
    /// Creates a ledger without resources.
    pub fn new(criterion: Criterion) -> Self {
        Self { criterion, ..Self::default() }
    }

    /// Adds a resource, or changes its capacity, blocking and weight. Grants stay.
    ///
    /// # Errors
    /// The new capacity is below the promises, or flows hold shares in another unit.
    pub fn set(&mut self, name: &str, resource: Resource) -> Result<(), Refusal> {
        let Some(account) = self.accounts.get_mut(name) else {
            self.accounts.insert(name.to_owned(), Account { resource, promised: 0, flows: 0 });
            return Ok(());
        };
        let name = || name.to_owned();
        if account.flows > 0 && account.resource.unit != resource.unit {
            return Err(Refusal::OtherUnit { resource: name() });
        }
        if resource.capacity < account.promised {
            let Resource { unit, capacity, .. } = resource;
            return Err(Refusal::Capacity { resource: name(), unit, capacity, promised: account.promised });
        }
        account.resource = resource;
        Ok(())
    }

    /// Removes a resource.
    ///
    /// # Errors
    /// No resource has the name, or flows hold shares of it.
    pub fn remove(&mut self, name: &str) -> Result<(), Refusal> {
        match self.accounts.get(name) {
            None => Err(Refusal::UnknownResource(name.to_owned())),
            Some(account) if account.flows > 0 => {
                Err(Refusal::Occupied { resource: name.to_owned(), flows: account.flows })
            }
            Some(_) => {
                self.accounts.remove(name);
                Ok(())
            }
        }
    }

    /// Returns a resource, with the share of it that isn't promised.
    pub fn resource(&self, name: &str) -> Option<(&Resource, u64)> {
        self.accounts.get(name).map(|account| (&account.resource, account.free()))
    }

    /// Iterates over the resources, with the share of each that isn't promised.
    pub fn resources(&self) -> impl Iterator<Item = (&str, &Resource, u64)> {
        self.accounts.iter().map(|(name, account)| (name.as_str(), &account.resource, account.free()))
    }

    /// Returns the grant of a flow.
    pub fn grant(&self, flow: &str) -> Option<&Grant> {
        self.flows.get(flow)
    }

    /// Iterates over all flows, with their grants.
    pub fn grants(&self) -> impl Iterator<Item = (&str, &Grant)> {
        self.flows.iter().map(|(name, grant)| (name.as_str(), grant))
    }

    /// Decides about a request, and changes nothing.
    ///
    /// # Errors
    /// The request is invalid, or the free shares don't meet the deadline.
    pub fn plan(&self, request: &FlowRequest) -> Result<Grant, Refusal> {
        let demands = self.demands(request)?;
        let Demands { parts, budget, .. } = &demands;
        let shares = match self.criterion {
            Criterion::Even => split(parts, budget, &Rule::Even),
            Criterion::Balance => split(parts, budget, &Rule::Balance),
            Criterion::Mix => split(parts, budget, &Rule::Proportional(&self.proportions(&demands))),
        };
        let shares = shares.ok_or_else(|| self.late(request, &demands))?;
        self.granted(request, &shares)
    }

    /// Grants a request, or refuses it.
    ///
    /// # Errors
    /// The name is in use, the request is invalid, or the free shares don't meet the deadline. Nothing has
    /// changed then.
    pub fn admit(&mut self, flow: &str, request: &FlowRequest) -> Result<&Grant, Refusal> {
        if self.flows.contains_key(flow) {
            return Err(Refusal::InUse(flow.to_owned()));
        }
        let grant = self.plan(request)?;
        Ok(self.hold(flow, grant))
    }

    /// Holds a grant again, as it was before its release.
    ///
    /// # Errors
    /// The name is in use, a resource or an owner of a share is gone, or the free shares are too small. Nothing
    /// has changed then.
    pub fn restore(&mut self, flow: &str, grant: Grant) -> Result<&Grant, Refusal> {
        if self.flows.contains_key(flow) {
            return Err(Refusal::InUse(flow.to_owned()));
        }
        for stage in &grant.stages {
            let GrantedStage { resource, unit, work, share, time, owner, .. } = stage;
            let known =
                self.accounts.get(resource).ok_or_else(|| Refusal::UnknownResource(resource.clone()))?;
            if known.resource.unit != *unit {
                return Err(Refusal::OtherUnit { resource: resource.clone() });
            }
            let free = known.free();
            match owner {
                Some(owner) => {
                    self.shared(owner, resource)?;
                }
                None if *share > free => {
                    let (resource, unit, interval) = (resource.clone(), *unit, *time);
                    let fitting = (free > 0).then(|| Duration::from_nanos(unit.time_of(*work, free)));
                    return Err(Refusal::Lacks { resource, unit, interval, needed: *share, free, fitting });
                }
                None => {}
            }
        }
        Ok(self.hold(flow, grant))
    }

    /// Books the shares of a grant, which are free.
    fn hold(&mut self, flow: &str, grant: Grant) -> &Grant {
        for stage in &grant.stages {
            match &stage.owner {
                Some(owner) => {
                    self.sharers.entry(owner.clone()).or_default().insert(flow.to_owned());
                }
                None => {
                    let Some(account) = self.accounts.get_mut(&stage.resource) else { continue };
                    account.promised = account.promised.saturating_add(stage.share);
                    account.flows += 1;
                }
            }
        }
        let (names, terms) = mix_of(&grant);
        self.mixes.entry(names).or_default().add(&terms);
        self.flows.entry(flow.to_owned()).or_insert(grant)
    }

    /// Releases a flow. Gives back all that it held. Returns its grant.
    ///
    /// # Errors
    /// No flow has the name, or another flow uses a share of it. Nothing has changed then.
    pub fn release(&mut self, flow: &str) -> Result<Grant, Refusal> {
        if let Some(by) = self.sharers.get(flow).and_then(BTreeSet::first) {
            return Err(Refusal::Shared { name: flow.to_owned(), by: by.clone() });
        }
        let grant = self.flows.remove(flow).ok_or_else(|| Refusal::UnknownFlow(flow.to_owned()))?;
        for stage in &grant.stages {
            if let Some(owner) = &stage.owner {
                let Some(sharers) = self.sharers.get_mut(owner) else { continue };
                sharers.remove(flow);
                if sharers.is_empty() {
                    self.sharers.remove(owner);
                }
            } else if let Some(account) = self.accounts.get_mut(&stage.resource) {
                account.promised = account.promised.saturating_sub(stage.share);
                account.flows = account.flows.saturating_sub(1);
            }
        }
        let (names, terms) = mix_of(&grant);
        if let Some(mix) = self.mixes.get_mut(&names) {
            mix.remove(&terms);
            if mix.flows == 0 {
                self.mixes.remove(&names);
            }
        }
        Ok(grant)
    }

    /// Checks a request, and returns its demands with the times that the free shares allow.
    fn demands<'l>(&self, request: &'l FlowRequest) -> Result<Demands<'l>, Refusal> {
        let FlowRequest { deadline, interval, burst, stages } = request;
        for (what, is_zero) in
            [("deadline", deadline.is_zero()), ("interval", interval.is_zero()), ("burst", *burst == 0)]
        {
            if is_zero {
                return Err(Refusal::Zero(what));
            }
        }
        let (mut fixed, mut blocking, mut own) = (Times::default(), 0_u64, Vec::new());
        for (index, stage) in stages.iter().enumerate() {
            let name = stage.resource.as_str();
            let known = self.accounts.get(name);
            let account = known.ok_or_else(|| Refusal::UnknownResource(name.to_owned()))?;
            if stages.iter().skip(index + 1).any(|other| other.resource == name) {
                return Err(Refusal::Twice(name.to_owned()));
            }
            match &stage.demand {
                Demand::Own(0) => continue,
                Demand::Own(work) => own.push((name, account, *work)),
                Demand::SameAs(owner) => fixed.add(self.shared(owner, name)?.nanoseconds()),
            }
            blocking = blocking.saturating_add(nanoseconds(account.resource.blocking));
        }
        let available = nanoseconds(*deadline).saturating_sub(blocking);
        let budget = Budget { available, burst: *burst, fixed };
        if own.is_empty() {
            return Err(Refusal::NoWork);
        }
        let part = |(name, account, work): &(&str, &Account, u64)| part(name, account, *work, *interval);
        let parts = own.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        if budget.delay([]) >= u128::from(available) {
            let with_blocking = |delay: u128| duration(delay.saturating_add(blocking.into()));
            let possible = with_blocking(self.shortest(&parts, &budget));
            let blocking = with_blocking(budget.delay([]));
            return Err(Refusal::Blocked { deadline: *deadline, blocking, possible });
        }
        let names = own.iter().map(|(name, ..)| *name).collect();
        Ok(Demands { names, parts, budget, blocking })
    }

    /// Returns numbers in proportion to the times of a flow, by the mix of the flows with the same resources.
    fn proportions(&self, Demands { names, parts, budget, .. }: &Demands<'_>) -> Vec<f64> {
        let own =
            u128::from(budget.available).saturating_sub(budget.fixed.sum) / u128::from(budget.burst.max(1));
        let time = u64::try_from(own).unwrap_or(u64::MAX);
        let whole: Vec<f64> = parts.iter().map(|part| part.unit.exact_share(part.work, time)).collect();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.mixes.get(&names).unwrap_or(&Mix::default()).proportions(parts, &whole)
    }

    /// Returns the stage of the flow whose share of a resource `flow` uses.
    fn shared(&self, flow: &str, resource: &str) -> Result<&GrantedStage, Refusal> {
        let grant = self.flows.get(flow).ok_or_else(|| Refusal::UnknownFlow(flow.to_owned()))?;
        let none = || Refusal::NoShare { owner: flow.to_owned(), resource: resource.to_owned() };
        grant.stage(resource).ok_or_else(none)
    }

    /// Returns the shortest delay of a burst that the free shares allow, without blocking, in nanoseconds.
    fn shortest(&self, parts: &[Part], budget: &Budget) -> u128 {
        let fastest = parts.iter().map(|part| part.fastest);
        match self.criterion {
            Criterion::Even => budget.even_delay(parts.len(), fastest.max().unwrap_or(0)),
            Criterion::Balance | Criterion::Mix => budget.delay(fastest),
        }
    }

    /// Returns the refusal of a request whose deadline the free shares don't meet.
    fn late(&self, request: &FlowRequest, demands: &Demands<'_>) -> Refusal {
        let Demands { names, parts, budget, blocking } = demands;
        let deadline = request.deadline;
        let possible = duration(self.shortest(parts, budget).saturating_add((*blocking).into()));
        let slowest = parts.iter().zip(names).enumerate().max_by_key(|(_, (part, _))| part.fastest);
        let Some((index, (part, name))) = slowest else { return Refusal::NoWork };
        // Time of a packet that all others leave at their fastest.
        let time = match self.criterion {
            Criterion::Even => budget.even(parts.len()),
            Criterion::Balance | Criterion::Mix => {
                let others = parts.iter().enumerate().filter(|(other, _)| *other != index);
                budget.left_for(others.map(|(_, part)| part.fastest))
            }
        };
        let needed = part.unit.share_for(part.work, time).filter(|_| time >= part.shortest);
        let lacks =
            needed.filter(|needed| *needed <= part.capacity).map(|needed| needed.saturating_sub(part.free));
        Refusal::Late { deadline, possible, slowest: (*name).to_owned(), unit: part.unit, lacks }
    }

    /// Returns the grant of a request whose own work gets these shares and times.
    fn granted(&self, request: &FlowRequest, shares: &[(u64, u64)]) -> Result<Grant, Refusal> {
        let mut shares = shares.iter();
        let mut stages = Vec::with_capacity(request.stages.len());
        for stage in &request.stages {
            let name = &stage.resource;
            let known = self.accounts.get(name);
            let Resource { unit, blocking, .. } =
                known.ok_or_else(|| Refusal::UnknownResource(name.clone()))?.resource;
            stages.push(match &stage.demand {
                Demand::Own(0) => continue,
                Demand::Own(work) => {
                    let (share, time) = shares.next().copied().ok_or(Refusal::NoWork)?;
                    let (resource, time) = (name.clone(), Duration::from_nanos(time));
                    GrantedStage { resource, unit, work: *work, share, time, blocking, owner: None }
                }
                Demand::SameAs(owner) => {
                    let shared = self.shared(owner, name)?;
                    let owner = shared.owner.clone().unwrap_or_else(|| owner.clone());
                    GrantedStage { blocking, owner: Some(owner), ..shared.clone() }
                }
            });
        }
        let FlowRequest { deadline, interval, burst, .. } = *request;
        Ok(Grant { deadline, interval, burst, stages })
    }
}

/// Returns a time in nanoseconds as a duration, at most the longest one of 64 bits.
fn duration(nanoseconds: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// Returns the times of a packet that the free share of a resource allows.
fn part(name: &str, account: &Account, work: u64, interval: Duration) -> Result<Part, Refusal> {
    let Resource { unit, capacity, weight, .. } = account.resource;
    let (free, (shortest, longest)) = (account.free(), unit.deadlines());
    let slowest = nanoseconds(interval).min(longest);
    let needed = unit.share_for(work, slowest).unwrap_or(u64::MAX).max(unit.least_share());
    if needed > free {
        let (resource, interval) = (name.to_owned(), Duration::from_nanos(slowest));
        let fitting = (free > 0).then(|| Duration::from_nanos(unit.time_of(work, free)));
        return Err(Refusal::Lacks { resource, unit, interval, needed, free, fitting });
    }
    let slowest = slowest.max(shortest);
    let most = unit.share_for(work, shortest).map_or(free, |share| share.max(needed).min(free));
    let fastest = unit.time_of(work, most).clamp(shortest, slowest);
    Ok(Part { unit, work, free, capacity, weight, needed, shortest, fastest, slowest })
}

/// Returns the key and the terms of a grant in the mixes.
fn mix_of(grant: &Grant) -> (Vec<String>, Vec<u64>) {
    let names = grant.own().map(|stage| stage.resource.clone()).collect();
    let time = grant.own_time();
    let whole: Vec<f64> = grant.own().map(|stage| stage.unit.exact_share(stage.work, time)).collect();
    (names, terms(&whole))
}
