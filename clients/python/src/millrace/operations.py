"""The operations of the interface, each as a method.

Made by tools/python-client: change what the router says of itself, and make it again.
"""

from __future__ import annotations

from typing import Any, Iterator

from . import types
from .transport import Event, Transport


class Operations(Transport):
    """All operations, named by method and path."""

    def get_resources(
        self,
    ) -> types.ListView:
        """GET /: resources and their methods. Role: viewer."""
        return self.json('GET', '/')

    def get_audit(
        self,
        *,
        last: int | None = None,
    ) -> list[types.AuditEntry]:
        """GET /audit: the audit log: requested changes with caller and outcome. Role: admin."""
        return self.json('GET', '/audit', query={'last': last})

    def get_bindings(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> list[types.BindingView]:
        """GET /bindings: bindings. Role: viewer."""
        return self.json('GET', '/bindings', query={'cursor': cursor, 'limit': limit})

    def post_bindings(
        self,
        body: types.NewBinding,
    ) -> types.BindingView:
        """POST /bindings: binds an instance. Role: operator."""
        return self.json('POST', '/bindings', body=body)

    def delete_bindings(
        self,
        body: types.Unbind,
    ) -> types.BindingView:
        """DELETE /bindings: removes a binding. Role: operator."""
        return self.json('DELETE', '/bindings', body=body)

    def get_capture(
        self,
        *,
        count: int | None = None,
        filter: str | None = None,
        gate: str | None = None,
        instance: str | None = None,
        port: str | None = None,
        snap: str | None = None,
    ) -> Iterator[bytes]:
        """GET /capture: captures frames as pcapng, until ?count= frames are captured or the client disconnects. Role: operator."""
        return self.pieces('GET', '/capture', query={'count': count, 'filter': filter, 'gate': gate, 'instance': instance, 'port': port, 'snap': snap})

    def get_configuration(
        self,
    ) -> types.ConfigurationView:
        """GET /configuration: the running configuration as a file; refused during a transaction. Role: viewer."""
        return self.json('GET', '/configuration')

    def post_configuration(
        self,
        body: types.Apply,
        *,
        if_match: str | None = None,
    ) -> types.AppliedView:
        """POST /configuration: applies a configuration file atomically; reverts after `confirm` unless it is confirmed. Role: admin."""
        return self.json('POST', '/configuration', body=body, if_match=if_match)

    def post_configuration_confirm(
        self,
        body: types.Confirm | None = None,
    ) -> types.Confirmed:
        """POST /configuration/confirm: confirms the applied configuration; with a number, only this revision. Role: admin."""
        return self.json('POST', '/configuration/confirm', body=body)

    def post_configuration_diff(
        self,
        body: types.Compared,
    ) -> types.DifferenceView:
        """POST /configuration/diff: lists the changes that a configuration file would make; without a text, the changes since the last apply. Role: operator."""
        return self.json('POST', '/configuration/diff', body=body)

    def post_configuration_rollback(
        self,
        body: types.RollBack,
    ) -> types.AppliedView:
        """POST /configuration/rollback: applies an earlier revision; without a number, the previous one. Role: admin."""
        return self.json('POST', '/configuration/rollback', body=body)

    def post_configuration_save(
        self,
        body: types.Save,
    ) -> types.Saved:
        """POST /configuration/save: writes the running configuration into the text of a file, and keeps its comments. Role: operator."""
        return self.json('POST', '/configuration/save', body=body)

    def get_control_plane(
        self,
    ) -> types.ControlPlaneView:
        """GET /control-plane: control-plane policing: rates and counters by class. Role: viewer."""
        return self.json('GET', '/control-plane')

    def patch_control_plane(
        self,
        body: dict[str, Any],
    ) -> types.ControlPlaneView:
        """PATCH /control-plane: changes rates of control-plane policing; null restores the default. Role: admin."""
        return self.json('PATCH', '/control-plane', body=body)

    def delete_counters(
        self,
    ) -> types.Cleared:
        """DELETE /counters: resets packet counters; counters of queues, schedulers and flows continue. Role: operator."""
        return self.json('DELETE', '/counters')

    def get_drops(
        self,
    ) -> list[types.DropView]:
        """GET /drops: drops by reason. Role: viewer."""
        return self.json('GET', '/drops')

    def get_drops_packets(
        self,
        *,
        follow: bool | None = None,
        reason: str | None = None,
    ) -> list[types.DroppedView]:
        """GET /drops/packets: the last dropped packets, up to 8 for each reason and worker; as pcapng, or as a stream, if accepted. Role: operator."""
        return self.json('GET', '/drops/packets', query={'follow': follow, 'reason': reason})

    def follow_drops_packets(
        self,
        *,
        follow: bool | None = None,
        reason: str | None = None,
        last_event_id: int | None = None,
    ) -> Iterator[Event]:
        """GET /drops/packets as a stream, until the iteration ends. Role: operator."""
        return self.events('/drops/packets', query={'follow': follow, 'reason': reason}, last_event_id=last_event_id)

    def get_events(
        self,
        *,
        kind: str | None = None,
        last: int | None = None,
        limit: int | None = None,
        since: int | None = None,
    ) -> types.EventPage:
        """GET /events: events; with `Accept: text/event-stream` as a stream, after Last-Event-ID. Role: viewer."""
        return self.json('GET', '/events', query={'kind': kind, 'last': last, 'limit': limit, 'since': since})

    def follow_events(
        self,
        *,
        kind: str | None = None,
        last: int | None = None,
        limit: int | None = None,
        since: int | None = None,
        last_event_id: int | None = None,
    ) -> Iterator[Event]:
        """GET /events as a stream, until the iteration ends. Role: viewer."""
        return self.events('/events', query={'kind': kind, 'last': last, 'limit': limit, 'since': since}, last_event_id=last_event_id)

    def get_filters(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> list[types.FilterView]:
        """GET /filters: filters and bindings. Role: viewer."""
        return self.json('GET', '/filters', query={'cursor': cursor, 'limit': limit})

    def post_filters(
        self,
        body: types.NewFilter | list[types.NewFilter],
    ) -> types.FiltersAdded:
        """POST /filters: adds a filter, or a list atomically. Role: operator."""
        return self.json('POST', '/filters', body=body)

    def delete_filters(
        self,
        body: types.OldFilters,
    ) -> list[types.FilterView]:
        """DELETE /filters: removes filters atomically. Role: operator."""
        return self.json('DELETE', '/filters', body=body)

    def get_filters_check(
        self,
    ) -> list[types.GateCheckView]:
        """GET /filters/check: at each gate, filters that never win, and ambiguous pairs. Role: viewer."""
        return self.json('GET', '/filters/check')

    def get_filters_explain(
        self,
        *,
        packet: str,
    ) -> list[types.GateExplanationView]:
        """GET /filters/explain: at each gate, which filter matches ?packet= and why. Role: viewer."""
        return self.json('GET', '/filters/explain', query={'packet': packet})

    def get_filters_id(
        self,
        id: int,
    ) -> types.FilterView:
        """GET /filters/{id}: a filter or binding. Role: viewer."""
        return self.json('GET', f'/filters/{self.segment(id)}')

    def delete_filters_id(
        self,
        id: int,
        *,
        if_match: str | None = None,
    ) -> types.FilterView | None:
        """DELETE /filters/{id}: removes a filter or binding. Role: operator."""
        return self.json('DELETE', f'/filters/{self.segment(id)}', if_match=if_match)

    def get_flows(
        self,
        *,
        filter: str | None = None,
        limit: int | None = None,
        order: Literal['rate'] | Literal['bytes'] | Literal['packets'] | Literal['recent'] | None = None,
    ) -> types.FlowsView:
        """GET /flows: flows that match a filter, in an order. Role: viewer."""
        return self.json('GET', '/flows', query={'filter': filter, 'limit': limit, 'order': order})

    def delete_flows(
        self,
        *,
        filter: str | None = None,
    ) -> types.Flushed:
        """DELETE /flows: flushes flows that match a filter. Role: operator."""
        return self.json('DELETE', '/flows', query={'filter': filter})

    def get_gates(
        self,
    ) -> list[types.GateView]:
        """GET /gates: gates and their bindings. Role: viewer."""
        return self.json('GET', '/gates')

    def post_gates(
        self,
        body: types.CreateGate,
    ) -> types.GateView:
        """POST /gates: creates a gate, the last at its position. Role: operator."""
        return self.json('POST', '/gates', body=body)

    def get_gates_name(
        self,
        name: str,
    ) -> types.GateView:
        """GET /gates/{name}: a gate. Role: viewer."""
        return self.json('GET', f'/gates/{self.segment(name)}')

    def patch_gates_name(
        self,
        name: str,
        body: types.GateSettings,
        *,
        if_match: str | None = None,
    ) -> types.GateView:
        """PATCH /gates/{name}: changes the lookup algorithm of a gate. Role: operator."""
        return self.json('PATCH', f'/gates/{self.segment(name)}', body=body, if_match=if_match)

    def delete_gates_name(
        self,
        name: str,
        *,
        if_match: str | None = None,
    ) -> types.GateView:
        """DELETE /gates/{name}: removes an unused gate. Role: operator."""
        return self.json('DELETE', f'/gates/{self.segment(name)}', if_match=if_match)

    def get_hardware(
        self,
    ) -> types.HardwareView:
        """GET /hardware: processors, ports and the switches between them, with their capabilities. Role: viewer."""
        return self.json('GET', '/hardware')

    def get_instances(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> list[types.InstanceView]:
        """GET /instances: plugin instances. Role: viewer."""
        return self.json('GET', '/instances', query={'cursor': cursor, 'limit': limit})

    def post_instances(
        self,
        body: types.NewInstance,
    ) -> types.InstanceView:
        """POST /instances: creates an instance. Role: operator."""
        return self.json('POST', '/instances', body=body)

    def get_instances_name(
        self,
        name: str,
    ) -> types.InstanceView:
        """GET /instances/{name}: an instance. Role: viewer."""
        return self.json('GET', f'/instances/{self.segment(name)}')

    def patch_instances_name(
        self,
        name: str,
        body: types.InstanceChange,
        *,
        if_match: str | None = None,
    ) -> types.InstanceView:
        """PATCH /instances/{name}: changes settings of an instance, or renames it. Role: operator."""
        return self.json('PATCH', f'/instances/{self.segment(name)}', body=body, if_match=if_match)

    def delete_instances_name(
        self,
        name: str,
        *,
        if_match: str | None = None,
    ) -> types.InstanceView:
        """DELETE /instances/{name}: removes an instance and its bindings. Role: operator."""
        return self.json('DELETE', f'/instances/{self.segment(name)}', if_match=if_match)

    def post_instances_name_control(
        self,
        name: str,
        body: types.Message,
    ) -> Any:
        """POST /instances/{name}/control: sends a control message to an instance or to its host companion. Role: operator."""
        return self.json('POST', f'/instances/{self.segment(name)}/control', body=body)

    def get_instances_name_maps(
        self,
        name: str,
    ) -> list[types.MapView]:
        """GET /instances/{name}/maps: shared maps of an instance. Role: viewer."""
        return self.json('GET', f'/instances/{self.segment(name)}/maps')

    def get_instances_name_maps_map(
        self,
        name: str,
        map: str,
    ) -> types.MapView:
        """GET /instances/{name}/maps/{map}: a shared map, with up to 4,096 entries. Role: viewer."""
        return self.json('GET', f'/instances/{self.segment(name)}/maps/{self.segment(map)}')

    def post_instances_name_release(
        self,
        name: str,
    ) -> types.ReleaseView:
        """POST /instances/{name}/release: releases an instance from quarantine. Role: operator."""
        return self.json('POST', f'/instances/{self.segment(name)}/release')

    def post_lookup(
        self,
        body: types.Lookup,
    ) -> types.LookupView:
        """POST /lookup: shows how the router would forward a packet. Role: viewer."""
        return self.json('POST', '/lookup', body=body)

    def get_metrics(
        self,
    ) -> str:
        """GET /metrics: metrics in OpenMetrics format. Role: viewer."""
        return self.text('GET', '/metrics')

    def get_neighbours(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> list[types.NeighbourView]:
        """GET /neighbours: neighbours of the ports. Role: viewer."""
        return self.json('GET', '/neighbours', query={'cursor': cursor, 'limit': limit})

    def post_neighbours(
        self,
        body: types.NewNeighbour,
    ) -> types.NeighbourView:
        """POST /neighbours: adds a static neighbour. Role: operator."""
        return self.json('POST', '/neighbours', body=body)

    def delete_neighbours(
        self,
        body: types.OldNeighbour,
    ) -> types.NeighbourView:
        """DELETE /neighbours: removes a static neighbour. Role: operator."""
        return self.json('DELETE', '/neighbours', body=body)

    def get_openapi_json(
        self,
    ) -> dict[str, Any]:
        """GET /openapi.json: the API description, in OpenAPI 3.1. Role: viewer."""
        return self.json('GET', '/openapi.json')

    def get_placements(
        self,
    ) -> types.PlacementsView:
        """GET /placements: placements, the number of flows at each level, and the reasons for flows at a worker. Role: viewer."""
        return self.json('GET', '/placements')

    def put_placements(
        self,
        body: types.NewPlacement,
    ) -> types.PlacementView:
        """PUT /placements: places flows at the level offload or worker; auto removes the placement. Role: operator."""
        return self.json('PUT', '/placements', body=body)

    def get_plugins(
        self,
    ) -> list[types.PluginView]:
        """GET /plugins: plugins. Role: viewer."""
        return self.json('GET', '/plugins')

    def post_plugins(
        self,
        body: types.NewPlugin,
    ) -> types.PluginView:
        """POST /plugins: loads a plugin from a file on the router's machine. Role: admin."""
        return self.json('POST', '/plugins', body=body)

    def get_plugins_name(
        self,
        name: str,
    ) -> types.PluginDetailView:
        """GET /plugins/{name}: a plugin: settings, messages, capabilities and counters. Role: viewer."""
        return self.json('GET', f'/plugins/{self.segment(name)}')

    def put_plugins_name(
        self,
        name: str,
        body: types.Upgrade,
        *,
        if_match: str | None = None,
    ) -> types.UpgradeView:
        """PUT /plugins/{name}: replaces a plugin by another version. Role: admin."""
        return self.json('PUT', f'/plugins/{self.segment(name)}', body=body, if_match=if_match)

    def delete_plugins_name(
        self,
        name: str,
        *,
        if_match: str | None = None,
    ) -> types.PluginView:
        """DELETE /plugins/{name}: unloads a plugin without instances. Role: admin."""
        return self.json('DELETE', f'/plugins/{self.segment(name)}', if_match=if_match)

    def post_plugins_name_rollback(
        self,
        name: str,
        *,
        if_match: str | None = None,
    ) -> types.UpgradeView:
        """POST /plugins/{name}/rollback: restores the previous version of a plugin. Role: admin."""
        return self.json('POST', f'/plugins/{self.segment(name)}/rollback', if_match=if_match)

    def get_ports(
        self,
    ) -> list[types.PortView]:
        """GET /ports: ports with counters and rates. Role: viewer."""
        return self.json('GET', '/ports')

    def get_ports_name(
        self,
        name: str,
    ) -> types.PortView:
        """GET /ports/{name}: a port. Role: viewer."""
        return self.json('GET', f'/ports/{self.segment(name)}')

    def patch_ports_name(
        self,
        name: str,
        body: dict[str, Any],
    ) -> types.PortView:
        """PATCH /ports/{name}: changes settings of a port; null restores the default. Role: operator."""
        return self.json('PATCH', f'/ports/{self.segment(name)}', body=body)

    def get_quarantine(
        self,
    ) -> list[types.HeldView]:
        """GET /quarantine: instances that stay in quarantine at the next start. Role: viewer."""
        return self.json('GET', '/quarantine')

    def get_queues(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> list[types.QueueView]:
        """GET /queues: queues of schedulers, with backlog and counters. Role: viewer."""
        return self.json('GET', '/queues', query={'cursor': cursor, 'limit': limit})

    def get_queues_port_queue(
        self,
        port: str,
        queue: str,
    ) -> types.QueueView:
        """GET /queues/{port}/{queue}: a queue, with its flow queues. Role: viewer."""
        return self.json('GET', f'/queues/{self.segment(port)}/{self.segment(queue)}')

    def patch_queues_port_queue(
        self,
        port: str,
        queue: str,
        body: types.QueueChanges,
        *,
        if_match: str | None = None,
    ) -> types.QueueChanged:
        """PATCH /queues/{port}/{queue}: changes settings of a queue, or of one flow queue. Role: operator."""
        return self.json('PATCH', f'/queues/{self.segment(port)}/{self.segment(queue)}', body=body, if_match=if_match)

    def get_rates(
        self,
        *,
        hz: int | None = None,
    ) -> types.RatesView:
        """GET /rates: packet and byte rates of ports, ?hz= times a second as a stream, or once. Role: viewer."""
        return self.json('GET', '/rates', query={'hz': hz})

    def follow_rates(
        self,
        *,
        hz: int | None = None,
        last_event_id: int | None = None,
    ) -> Iterator[Event]:
        """GET /rates as a stream, until the iteration ends. Role: viewer."""
        return self.events('/rates', query={'hz': hz}, last_event_id=last_event_id)

    def get_revisions(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> list[types.RevisionView]:
        """GET /revisions: revisions of the configuration with time, caller and comment, the newest first. Role: viewer."""
        return self.json('GET', '/revisions', query={'cursor': cursor, 'limit': limit})

    def post_revisions(
        self,
        body: types.Keep,
    ) -> types.Revision:
        """POST /revisions: stores the running configuration as a revision. Role: operator."""
        return self.json('POST', '/revisions', body=body)

    def get_revisions_number(
        self,
        number: int,
    ) -> types.RevisionTextView:
        """GET /revisions/{number}: a revision, with its text. Role: viewer."""
        return self.json('GET', f'/revisions/{self.segment(number)}')

    def get_router(
        self,
    ) -> types.Router:
        """GET /router: router-wide settings. Role: viewer."""
        return self.json('GET', '/router')

    def patch_router(
        self,
        body: dict[str, Any],
        *,
        if_match: str | None = None,
    ) -> types.Router:
        """PATCH /router: changes router-wide settings; null restores the default. Role: admin."""
        return self.json('PATCH', '/router', body=body, if_match=if_match)

    def get_routes(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        within: str | None = None,
    ) -> list[types.RouteView]:
        """GET /routes: routes of the kernel and of the router, with counters. Role: viewer."""
        return self.json('GET', '/routes', query={'cursor': cursor, 'limit': limit, 'within': within})

    def post_routes(
        self,
        body: types.NewRoute | list[types.NewRoute],
    ) -> types.RoutesAdded:
        """POST /routes: adds a static route, or a list atomically. Role: operator."""
        return self.json('POST', '/routes', body=body)

    def put_routes(
        self,
        body: types.NewRoute,
    ) -> types.RouteView:
        """PUT /routes: adds a static route, or replaces the static route of its prefix. Role: operator."""
        return self.json('PUT', '/routes', body=body)

    def delete_routes(
        self,
        body: types.RemoveRoute | list[types.RemoveRoute],
    ) -> types.RoutesRemoved:
        """DELETE /routes: removes a static route, or a list atomically. Role: operator."""
        return self.json('DELETE', '/routes', body=body)

    def get_routes_lookup(
        self,
        *,
        address: str,
    ) -> types.RouteView:
        """GET /routes/lookup: the route of ?address=. Role: viewer."""
        return self.json('GET', '/routes/lookup', query={'address': address})

    def get_schedulers(
        self,
    ) -> list[types.SchedulerView]:
        """GET /schedulers: schedulers, with promised and delivered rates. Role: viewer."""
        return self.json('GET', '/schedulers')

    def get_schedulers_port(
        self,
        port: str,
    ) -> types.SchedulerView:
        """GET /schedulers/{port}: the scheduler of a port. Role: viewer."""
        return self.json('GET', f'/schedulers/{self.segment(port)}')

    def post_schedulers_port(
        self,
        port: str,
        body: types.SchedulerNode,
        *,
        if_match: str | None = None,
    ) -> types.SchedulerView:
        """POST /schedulers/{port}: adds a scheduler node. Role: operator."""
        return self.json('POST', f'/schedulers/{self.segment(port)}', body=body, if_match=if_match)

    def patch_schedulers_port(
        self,
        port: str,
        body: dict[str, Any],
        *,
        if_match: str | None = None,
    ) -> types.SchedulerView:
        """PATCH /schedulers/{port}: changes settings of a port's scheduler. Role: operator."""
        return self.json('PATCH', f'/schedulers/{self.segment(port)}', body=body, if_match=if_match)

    def patch_schedulers_port_node(
        self,
        port: str,
        node: str,
        body: dict[str, Any],
        *,
        if_match: str | None = None,
    ) -> types.SchedulerView:
        """PATCH /schedulers/{port}/{node}: changes settings of a scheduler node; null removes one. Role: operator."""
        return self.json('PATCH', f'/schedulers/{self.segment(port)}/{self.segment(node)}', body=body, if_match=if_match)

    def delete_schedulers_port_node(
        self,
        port: str,
        node: str,
        body: types.NodeRemoval,
        *,
        if_match: str | None = None,
    ) -> types.RemovedNodeView:
        """DELETE /schedulers/{port}/{node}: removes a scheduler node and its children, and moves their packets to another leaf. Role: operator."""
        return self.json('DELETE', f'/schedulers/{self.segment(port)}/{self.segment(node)}', body=body, if_match=if_match)

    def get_status(
        self,
    ) -> types.StatusAnswer:
        """GET /status: router status. Role: viewer."""
        return self.json('GET', '/status')

    def get_summary(
        self,
    ) -> types.SummaryView:
        """GET /summary: packet totals. Role: viewer."""
        return self.json('GET', '/summary')

    def get_tokens(
        self,
    ) -> list[types.TokenView]:
        """GET /tokens: API tokens, with owner and last use. Role: admin."""
        return self.json('GET', '/tokens')

    def post_tokens(
        self,
        body: types.NewToken,
    ) -> types.CreatedTokenView:
        """POST /tokens: creates a token; the answer shows it once. Role: admin."""
        return self.json('POST', '/tokens', body=body)

    def delete_tokens_name(
        self,
        name: str,
    ) -> types.TokenView:
        """DELETE /tokens/{name}: revokes a token. Role: admin."""
        return self.json('DELETE', f'/tokens/{self.segment(name)}')

    def get_trace(
        self,
        *,
        count: int | None = None,
        every: int | None = None,
        filter: str | None = None,
        time: str | None = None,
    ) -> list[types.TraceView]:
        """GET /trace: traces of packets, stage by stage, until ?count= packets are traced; as pcapng, or as a stream, if accepted. Role: operator."""
        return self.json('GET', '/trace', query={'count': count, 'every': every, 'filter': filter, 'time': time})

    def follow_trace(
        self,
        *,
        count: int | None = None,
        every: int | None = None,
        filter: str | None = None,
        time: str | None = None,
        last_event_id: int | None = None,
    ) -> Iterator[Event]:
        """GET /trace as a stream, until the iteration ends. Role: operator."""
        return self.events('/trace', query={'count': count, 'every': every, 'filter': filter, 'time': time}, last_event_id=last_event_id)
