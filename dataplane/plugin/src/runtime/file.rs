//! Trait methods that the wasm and native runtimes share: they answer from the manifest and the exchange.

/// Implements [`Plugin`](millrace_plugin_abi::Plugin) for a type with the methods `manifest`, `declared` and
/// `instance`. `instance` creates an instance with the given settings. The expression is a function that
/// returns the runtime of the plugin.
macro_rules! impl_plugin {
    ($plugin:ty, $runtime:expr) => {
        const _: () = {
            use millrace_plugin_abi::{Features, Instance, MapShape, Plugin, PluginError, Position, Runtime};
            use serde_json::{Map, Value};

            impl Plugin for $plugin {
                fn name(&self) -> &'static str {
                    self.declared().name
                }

                fn runtime(&self) -> Runtime {
                    let runtime: fn(&Self) -> Runtime = $runtime;
                    runtime(self)
                }

                fn version(&self) -> &'static str {
                    self.declared().version
                }

                fn summary(&self) -> &'static str {
                    self.declared().summary
                }

                fn positions(&self) -> &[Position] {
                    &self.manifest().positions
                }

                fn messages(&self) -> &[(&'static str, &'static str)] {
                    &self.declared().messages
                }

                fn settings_schema(&self) -> Option<&Map<String, Value>> {
                    self.manifest().settings.as_ref()
                }

                fn state_version(&self) -> u32 {
                    self.manifest().state.version
                }

                fn features(&self) -> Features {
                    self.manifest().features
                }

                fn capabilities(&self) -> &[&'static str] {
                    &self.manifest().capabilities
                }

                fn counters(&self) -> &[&'static str] {
                    &self.declared().counters
                }

                fn contexts(&self) -> u8 {
                    self.manifest().calls.contexts
                }

                fn declared_cycles(&self, kind: &str) -> Option<millrace_plugin_abi::DeclaredCycles> {
                    self.manifest().calls.cost.as_ref()?.declared_on(kind)
                }

                fn declared_needs(&self) -> millrace_plugin_abi::DeclaredNeeds {
                    self.manifest().calls.cost.as_ref().map(|cost| cost.needs()).unwrap_or_default()
                }

                fn maps(&self) -> &[MapShape] {
                    &self.manifest().maps
                }

                fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
                    let created = self.instance(settings);
                    created.map_err(|fault| PluginError::setting(self.name(), fault.kind.name(), fault.text))
                }
            }
        };
    };
}

/// Implements those methods of [`Instance`](millrace_plugin_abi::Instance) that run no code of the plugin,
/// for a type with the methods `manifest` and `shared`.
macro_rules! methods_without_plugin_code {
    () => {
        fn counters(&self) -> Vec<(&'static str, u64)> {
            self.shared().with(|exchange| exchange.counters())
        }

        fn has_timers(&self) -> bool {
            self.manifest().calls.period.is_some() || self.manifest().has_capability("timer")
        }

        fn needs_linear_packets(&self) -> bool {
            crate::declaration::declared::needs_linear_packets(self.manifest())
        }

        fn take_output(&mut self) -> Option<millrace_plugin_abi::Output> {
            self.shared().with(|exchange| exchange.outbox.take())
        }

        fn has_output(&self) -> bool {
            let outputs = ["log", "packet-make", "request", "message"];
            outputs.iter().any(|capability| self.manifest().has_capability(capability))
        }

        fn flow_state(&self) -> usize {
            self.manifest().state.flow.into()
        }

        fn state_scope(&self) -> millrace_plugin_abi::StateScope {
            self.manifest().state.scope
        }

        fn service_state(&self) -> Vec<u8> {
            self.shared().with(|exchange| exchange.service.to_vec())
        }

        fn adopt_service_state(&mut self, state: &[u8]) {
            self.shared().with(|exchange| exchange.service.adopt(state));
        }

        fn attach_maps(&mut self, maps: Vec<millrace_plugin_abi::MapHandle>) {
            self.shared().with(|exchange| exchange.maps.attach(maps));
        }
    };
}

pub(crate) use {impl_plugin, methods_without_plugin_code};
