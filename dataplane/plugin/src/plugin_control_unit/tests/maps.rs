//! Tests of shared maps: their creation, hand-over to successors, and existence while an instance reads them.

use std::sync::Mutex;

use millrace_plugin_abi::{MapHandle, MapProblem, MapShape};

use super::*;

type Attached = Arc<Mutex<Vec<Vec<MapHandle>>>>;

/// Plugin that records the maps attached to each of its instances.
struct Mapped {
    maps: Vec<MapShape>,
    attached: Attached,
    schema: Map<String, Value>,
}

struct Instanced(Attached);

impl Instance for Instanced {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Value::Null)
    }

    fn attach_maps(&mut self, maps: Vec<MapHandle>) {
        self.0.lock().unwrap().push(maps);
    }
}

impl Plugin for Mapped {
    fn name(&self) -> &'static str {
        "mapped"
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Has maps."
    }

    fn positions(&self) -> &'static [Position] {
        &[Position::Early]
    }

    fn messages(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn settings_schema(&self) -> Option<&Map<String, Value>> {
        Some(&self.schema)
    }

    fn maps(&self) -> &[MapShape] {
        &self.maps
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        // Numbers of the instance's own maps come first, then those of other instances' maps.
        assert!(settings.get("list").is_none_or(|list| *list == self.maps.len()), "{settings:?}");
        Ok(Box::new(Instanced(self.attached.clone())))
    }
}

fn shape(name: &str, entries: u32) -> MapShape {
    MapShape { name: name.into(), key: 1, value: 1, entries }
}

fn mapped(maps: Vec<MapShape>, attached: &Attached) -> Arc<Mapped> {
    let schema = json!({ "properties": {
        "list": { "type": "string", "format": "map" },
        "next": { "type": "string", "format": "instance" },
    } });
    Arc::new(Mapped { maps, attached: attached.clone(), schema: schema.as_object().cloned().unwrap() })
}

fn settings(list: &str) -> Map<String, Value> {
    json!({ "list": list }).as_object().cloned().unwrap()
}

fn said(error: Error) -> String {
    error.to_string()
}

/// Creates, for two workers, an instance and a second instance that reads the first one's map `b`. Returns
/// the maps attached to each.
fn with_reader() -> (Unit, Attached) {
    let attached = Attached::default();
    let mut unit = Unit::new();
    unit.instance_registry_mut().set_workers(2);
    unit.add_plugin(mapped(vec![shape("a", 4), shape("b", 4)], &attached)).unwrap();
    for (name, settings) in [("w", Map::new()), ("r", settings("w/b"))] {
        let (_, changes) = unit.create_instance("mapped", name, settings).unwrap();
        drop(unit.instance_registry().further(&changes, 0).unwrap());
    }
    (unit, attached)
}

#[test]
fn each_worker_writes_its_copy_and_reads_all() {
    let (_unit, attached) = with_reader();
    let mut attached = attached.lock().unwrap();
    let [last_writer, first_writer, last_reader, first_reader] = &mut attached[..] else { panic!() };
    assert_eq!((last_writer.len(), last_reader.len()), (2, 3));
    last_writer[1].set(&[1], &[10]).unwrap();
    first_writer[1].set(&[1], &[20]).unwrap();
    first_writer[1].set(&[2], &[30]).unwrap();
    let read = |reader: &MapHandle, key: u8| {
        let mut value = [0];
        reader.get(&[key], &mut value).map(|()| value[0])
    };
    assert_eq!((read(&last_reader[2], 1), read(&first_reader[2], 1)), (Ok(10), Ok(20)));
    assert_eq!((read(&last_reader[2], 2), read(&last_reader[2], 3)), (Ok(30), Err(MapProblem::Absent)));
    assert_eq!(last_reader[2].set(&[1], &[1]), Err(MapProblem::Refused));
}

#[test]
fn read_map_stays() {
    let (mut unit, _) = with_reader();
    let refused = said(unit.free_instance("w").unwrap_err());
    assert!(
        refused.contains("\"w\"") && refused.contains("instance \"r\", which reads its maps"),
        "{refused}"
    );
    let check = |name, leaving: &[&str]| unit.instance_registry().check_unused(name, leaving);
    assert_eq!(said(check("w", &["w", "other"]).unwrap_err()), refused);
    assert!(check("w", &["r"]).is_ok() && check("r", &[]).is_ok());
    assert!(unit.instance_registry_mut().rename("w", "v").is_err());
    unit.free_instance("r").unwrap();
    unit.instance_registry_mut().rename("w", "v").unwrap();
    unit.free_instance("v").unwrap();
}

#[test]
fn map_named_by_other_instances_keeps_its_name() {
    let (mut unit, _) = with_reader();
    let next = json!({ "next": "r" }).as_object().cloned().unwrap();
    let (_, changes) = unit.create_instance("mapped", "first", next).unwrap();
    drop(unit.instance_registry().further(&changes, 0).unwrap());
    let refused = said(unit.free_instance("r").unwrap_err());
    assert!(refused.contains("instance \"first\", whose setting \"next\" names it"), "{refused}");
    assert!(unit.instance_registry_mut().rename("r", "s").is_err());
    unit.free_instance("first").unwrap();
    unit.instance_registry_mut().rename("r", "s").unwrap();
    unit.free_instance("s").unwrap();
}

/// Returns a setting that names an instance or a map.
fn naming(setting: &str, name: &str) -> Map<String, Value> {
    [(setting.to_owned(), Value::from(name))].into_iter().collect()
}

#[test]
fn instance_with_a_reused_id_is_created_after_the_instance_that_it_names() {
    let (mut unit, _) = with_reader();
    unit.create_instance("mapped", "t", Map::new()).unwrap();
    unit.free_instance("r").unwrap();
    let (id, _) = unit.create_instance("mapped", "user", naming("next", "t")).unwrap();
    assert!(id < unit.instance("t").unwrap());
    let places = unit.instance_registry().creation_order().places();
    assert_eq!(["w", "t", "user"].map(|name| places[name]), [0, 1, 2]);
}

#[test]
fn settings_by_which_an_instance_names_itself_are_refused() {
    let (mut unit, _) = with_reader();
    unit.create_instance("mapped", "first", naming("next", "r")).unwrap();
    let set = |name, settings| unit.instance_registry().with_settings(name, &settings, 1).map(drop);
    for (setting, name, cycle) in [
        ("next", "w", "\"w\" names \"w\";"),
        ("list", "r/a", "\"w\" names \"r\", \"r\" names \"w\";"),
        ("next", "first", "\"w\" names \"first\", \"first\" names \"r\", \"r\" names \"w\";"),
    ] {
        let refused = set("w", naming(setting, name)).unwrap_err();
        assert!(matches!(refused, Error::Cycle { .. }) && said(refused.clone()).contains(cycle), "{refused}");
    }
    assert!(set("r", naming("next", "w")).is_ok());
}

#[test]
fn unknown_map_is_refused() {
    let (mut unit, _) = with_reader();
    let mut refused = |list: &str| said(unit.create_instance("mapped", "x", settings(list)).unwrap_err());
    assert!(refused("w").contains("\"w\" is not a map name: give INSTANCE/MAP"));
    assert!(refused("v/b").contains("no instance \"v\""));
    assert!(refused("w/c").contains("no map \"c\": did you mean"));
}

#[test]
fn version_with_an_equal_map_declaration_keeps_the_map() {
    let (mut unit, attached) = with_reader();
    let before = unit.instance_registry().map_named("w", "b").unwrap();
    // The upgrade is refused if the new version lacks the map `b`, which has a reader, or changes its shape.
    for maps in [vec![shape("a", 4)], vec![shape("b", 5)]] {
        let refused = unit.successors(&*mapped(maps, &attached), 2).err().map(said).unwrap();
        assert!(refused.contains("map \"b\"") && refused.contains("\"r\""), "{refused}");
    }
    let next = mapped(vec![shape("c", 1), shape("b", 4)], &attached);
    // The new version lacks the map `a`, which has no reader.
    for successors in unit.successors(&*next, 2).unwrap() {
        assert_eq!(successors.instances.len(), 2);
        unit.instance_registry_mut().note_maps(successors.id, successors.maps);
    }
    unit.replace_plugin(next).unwrap();
    assert!(Arc::ptr_eq(&unit.instance_registry().map_named("w", "b").unwrap(), &before));
    assert_eq!(unit.instance_registry().map_named("w", "c").unwrap().counts().len(), 2);
    assert!(unit.instance_registry().map_named("w", "a").is_err());
}
