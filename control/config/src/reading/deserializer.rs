//! Serde deserializer of a [`Tree`]. It adds path and byte range to each error.

use std::ops::Range;

use millrace_units::Spelling;
use serde::de::value::{StrDeserializer, StringDeserializer, UsizeDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::{Expected, Fault, PathStep, Present, ReadError};
use super::placed::PLACED;
use super::tree::{Entry, Node, Tree};

impl Tree {
    /// Reads a type from the value.
    ///
    /// # Errors
    /// Returns the first fault, with its path.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, ReadError> {
        self.read_with(None)
    }

    /// Reads settings. The type spells their keys with hyphens, and the document spells them as `spelling`
    /// says.
    ///
    /// # Errors
    /// Returns the first fault, with its path. The text of the fault spells keys as the document does.
    pub fn read_settings<T: DeserializeOwned>(self, spelling: Spelling) -> Result<T, ReadError> {
        self.read_with(Some(spelling))
    }

    fn read_with<T: DeserializeOwned>(self, keys: Option<Spelling>) -> Result<T, ReadError> {
        let span = self.span.clone();
        T::deserialize(Reader { tree: self, keys }).map_err(|error| error.at(span))
    }
}

/// Deserializer of a value.
struct Reader {
    tree: Tree,
    /// Spelling of the keys in the document; `None` unless the value is a table of settings.
    keys: Option<Spelling>,
}

type Read<T> = Result<T, ReadError>;

impl Reader {
    fn wrong(&self, expected: Expected) -> ReadError {
        Fault::Wrong { present: Present::of(&self.tree.node), expected }.into()
    }

    /// Reads an integer from `least` to `most`.
    fn integer<'de, V: Visitor<'de>>(self, least: i128, most: i128, visitor: V) -> Read<V::Value> {
        let number = match &self.tree.node {
            Node::Natural(natural) => Some(i128::from(*natural)),
            Node::Negative(negative) => Some(i128::from(*negative)),
            // `-0` is not accepted for an unsigned type, as in JSON.
            Node::Argument(text) if least < 0 || !text.starts_with('-') => text.parse().ok(),
            _ => None,
        };
        let Some(number) = number.filter(|number| (least..=most).contains(number)) else {
            return Err(self.wrong(Expected::Integer { least, most }));
        };
        match (u64::try_from(number), i64::try_from(number)) {
            (Ok(natural), _) => visitor.visit_u64(natural),
            (_, Ok(negative)) => visitor.visit_i64(negative),
            _ => Err(self.wrong(Expected::Integer { least, most })),
        }
    }

    fn float<'de, V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match &self.tree.node {
            Node::Natural(natural) => visitor.visit_u64(*natural),
            Node::Negative(negative) => visitor.visit_i64(*negative),
            Node::Float(float) => visitor.visit_f64(*float),
            Node::Argument(text) => match text.parse() {
                Ok(float) => visitor.visit_f64(float),
                Err(_) => Err(self.wrong(Expected::Number)),
            },
            _ => Err(self.wrong(Expected::Number)),
        }
    }

    /// Reads a text. If the type is an address and the text is none, the fault gives an example.
    fn text<'de, V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let address = address(&visitor);
        match self.tree.node {
            Node::Text(text) | Node::Argument(text) => match address {
                None => visitor.visit_string(text),
                Some(expected) => visitor
                    .visit_str(&text)
                    .map_err(|_: ReadError| Fault::Wrong { present: Present::Text(text), expected }.into()),
            },
            _ => Err(self.wrong(address.unwrap_or(Expected::Text))),
        }
    }

    /// Reads the entries of a table.
    fn table<'de, V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let keys = self.keys;
        match self.tree.node {
            Node::Table(entries) => {
                let access = Entries { entries: entries.into_iter(), keys, value: None };
                visitor.visit_map(access).map_err(|error| error.with_keys(keys))
            }
            _ => Err(self.wrong(Expected::Table)),
        }
    }

    /// Reads the elements of a list.
    fn list<'de, V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.tree.node {
            Node::List(elements) => visitor.visit_seq(Elements(elements.into_iter().enumerate())),
            _ => Err(self.wrong(Expected::List)),
        }
    }

    /// Reads a list that must have this number of elements.
    fn tuple<'de, V: Visitor<'de>>(self, length: usize, visitor: V) -> Read<V::Value> {
        if let Node::List(elements) = &self.tree.node {
            let present = elements.iter().filter(|element| element.is_there()).count();
            if present != length {
                let (present, expected) = (Present::ListOf(present), Expected::ListOf(length));
                return Err(Fault::Wrong { present, expected }.into());
            }
        }
        self.list(visitor)
    }
}

/// Reads an element of a table or list, and adds its byte range to an error.
fn read_value<'de, S: DeserializeSeed<'de>>(tree: Tree, seed: S) -> Read<S::Value> {
    let (span, is_text) = (tree.span.clone(), tree.as_text().is_some());
    let read = seed.deserialize(Reader { tree, keys: None });
    read.map_err(|error| if is_text { error.of_text() } else { error }.at(span))
}

/// Returns the expected kind of address if the visitor reads an address; `None` for any other visitor.
///
/// The errors of address types don't name the valid values. But the visitor of an address type describes
/// itself by the kind of address that it expects, and this function recognises that description.
fn address<'de, V: Visitor<'de>>(visitor: &V) -> Option<Expected> {
    const KINDS: [(&str, Expected); 5] = [
        ("IP address", Expected::Address { noun: "an IP address", examples: "10.0.0.1 or fd00::1" }),
        ("IPv4 address", Expected::Address { noun: "an IPv4 address", examples: "10.0.0.1" }),
        ("IPv6 address", Expected::Address { noun: "an IPv6 address", examples: "fd00::1" }),
        (
            "socket address",
            Expected::Address { noun: "an address with a port", examples: "0.0.0.0:8443 or [::]:8443" },
        ),
        (
            "IPv4 or IPv6 network address",
            Expected::Address {
                noun: "an address with prefix length",
                examples: "10.0.0.1/24 or fd00::1/64",
            },
        ),
    ];
    let expected = (visitor as &dyn serde::de::Expected).to_string();
    KINDS.into_iter().find(|(name, _)| *name == expected).map(|(_, expected)| expected)
}

/// Defines the methods for integers.
macro_rules! integers {
    ($($method:ident $kind:ty)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
            self.integer(<$kind>::MIN.into(), <$kind>::MAX.into(), visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.tree.node {
            Node::Null | Node::Removed => visitor.visit_unit(),
            Node::Boolean(boolean) => visitor.visit_bool(boolean),
            Node::Natural(natural) => visitor.visit_u64(natural),
            Node::Negative(negative) => visitor.visit_i64(negative),
            Node::Float(float) => visitor.visit_f64(float),
            Node::OutOfRange(_) => Err(self.wrong(Expected::Number)),
            Node::Text(text) | Node::Argument(text) | Node::Date(text) => visitor.visit_string(text),
            Node::List(_) => self.list(visitor),
            Node::Table(_) => self.table(visitor),
        }
    }

    integers! {
        deserialize_u8 u8
        deserialize_u16 u16
        deserialize_u32 u32
        deserialize_u64 u64
        deserialize_i8 i8
        deserialize_i16 i16
        deserialize_i32 i32
        deserialize_i64 i64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match &self.tree.node {
            Node::Boolean(boolean) => visitor.visit_bool(*boolean),
            Node::Argument(text) => match text.parse() {
                Ok(boolean) => visitor.visit_bool(boolean),
                Err(_) => Err(self.wrong(Expected::Boolean)),
            },
            _ => Err(self.wrong(Expected::Boolean)),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.float(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.float(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.text(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.tree.node {
            Node::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Read<V::Value> {
        match self.tree.span.clone() {
            Some(Range { start, end }) if name == PLACED => {
                visitor.visit_seq(PlacedParts { ends: [start, end].into_iter(), value: Some(self) })
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.list(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Read<V::Value> {
        self.tuple(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Read<V::Value> {
        self.tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.table(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        self.table(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        match self.tree.node {
            Node::Text(name) | Node::Argument(name) => {
                visitor.visit_enum(Variant { name, span: None, value: None })
            }
            Node::Table(mut entries) if entries.len() == 1 => {
                let Entry { key, span, value } = entries.remove(0);
                visitor.visit_enum(Variant { name: key, span, value: Some(value) })
            }
            _ => Err(self.wrong(Expected::OneOf(variants))),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct identifier
    }
}

/// Entries of a table.
struct Entries {
    entries: std::vec::IntoIter<Entry>,
    keys: Option<Spelling>,
    /// Value of the key that was read last, and this key in the spelling of the type.
    value: Option<(String, Tree)>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Read<Option<K::Value>> {
        let Some(Entry { key, span, value }) = self.entries.next() else { return Ok(None) };
        let key = match self.keys {
            Some(Spelling::Json) if key.contains('-') => return Err(Fault::Hyphens(key).into()),
            Some(Spelling::Json) => key.replace('_', "-"),
            Some(Spelling::File) | None => key,
        };
        let name: StringDeserializer<ReadError> = key.clone().into_deserializer();
        let read = seed.deserialize(name).map_err(|error| error.at(span))?;
        self.value = Some((key, value));
        Ok(Some(read))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Read<S::Value> {
        let (key, tree) = self.value.take().unwrap_or_else(|| (String::new(), Node::Null.into()));
        read_value(tree, seed).map_err(|error| {
            error.under(match self.keys {
                None => PathStep::Key(key),
                Some(_) => PathStep::Setting(key),
            })
        })
    }
}

/// Elements of a list.
struct Elements(std::iter::Enumerate<std::vec::IntoIter<Tree>>);

impl<'de> SeqAccess<'de> for Elements {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Read<Option<S::Value>> {
        let Some((index, tree)) = self.0.find(|(_, tree)| tree.is_there()) else { return Ok(None) };
        read_value(tree, seed).map(Some).map_err(|error| error.under(PathStep::Entry(index)))
    }
}

/// Start and end of a byte range, followed by the value.
struct PlacedParts {
    ends: std::array::IntoIter<usize, 2>,
    value: Option<Reader>,
}

impl<'de> SeqAccess<'de> for PlacedParts {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Read<Option<S::Value>> {
        match self.ends.next() {
            Some(end) => seed.deserialize(UsizeDeserializer::new(end)).map(Some),
            None => self.value.take().map(|value| seed.deserialize(value)).transpose(),
        }
    }
}

/// Variant of an enum, with its value: `"name"`, or `{"name": value}`.
struct Variant {
    name: String,
    /// Byte range of the name; `None` if the variant has no value.
    span: Option<Range<usize>>,
    value: Option<Tree>,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Read<(S::Value, Self)> {
        let name: StrDeserializer<'_, ReadError> = self.name.as_str().into_deserializer();
        let variant = seed.deserialize(name).map_err(|error| error.at(self.span.clone()))?;
        Ok((variant, self))
    }
}

impl Variant {
    /// Returns the value of the variant, and its step in the path.
    fn value(self) -> Read<(Tree, PathStep)> {
        let Self { name, value, .. } = self;
        let expected = Expected::Other(format!("an object {{{name:?}: value}}"));
        match value {
            Some(value) => Ok((value, PathStep::Key(name))),
            None => Err(Fault::Wrong { present: Present::Text(name), expected }.into()),
        }
    }

    fn read<T>(self, read: impl FnOnce(Reader) -> Read<T>) -> Read<T> {
        let (tree, step) = self.value()?;
        let span = tree.span.clone();
        read(Reader { tree, keys: None }).map_err(|error| error.at(span).under(step))
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = ReadError;

    fn unit_variant(self) -> Read<()> {
        match self.value {
            None | Some(Tree { node: Node::Null, .. }) => Ok(()),
            Some(Tree { node, span }) => {
                let expected = Expected::Other(format!("only {:?}", self.name));
                let error = ReadError::from(Fault::Wrong { present: Present::of(&node), expected });
                Err(error.at(span).under(PathStep::Key(self.name)))
            }
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Read<S::Value> {
        let (value, step) = self.value()?;
        read_value(value, seed).map_err(|error| error.under(step))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Read<V::Value> {
        self.read(|reader| reader.tuple(length, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Read<V::Value> {
        self.read(|reader| reader.table(visitor))
    }
}
