//! What servers send, as values: definitions of tools, and results of calls.

use recurgent::json::{self, Value, json};
use recurgent::toolbox::{MethodDefinition, ToolFault};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, Tool};
use serde::Serialize;

/// Bytes of a text that may be JSON.
const MAX_JSON_TEXT_BYTES: usize = 4 << 20;

/// A definition as the library takes it. `reads_only` names tools that a person says only read; `*` means all.
pub(crate) fn definition(tool: &Tool, reads_only: &[String]) -> MethodDefinition {
    let named = |name: &String| name == "*" || *name == *tool.name;
    let says_so = tool.annotations.as_ref().and_then(|it| it.read_only_hint).unwrap_or(false);
    let described = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    MethodDefinition {
        name: tool.name.to_string(),
        description: described.to_owned(),
        input: value_of(&tool.input_schema),
        output: tool.output_schema.as_ref().map(value_of),
        reads_only: says_so || reads_only.iter().any(named),
    }
}

/// A value of the standard JSON library as one of ours; null if it cannot be one.
fn value_of(value: &impl Serialize) -> Value {
    json::to_value(value).unwrap_or_default()
}

/// The value of a call. A server that says that the call failed is believed.
pub(crate) fn result(result: &CallToolResult) -> Result<Value, ToolFault> {
    let mut parts: Vec<Value> = result.content.iter().map(part).collect();
    if result.is_error == Some(true) {
        let said: Vec<String> = parts
            .iter()
            .map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned))
            .collect();
        let said = said.join("\n");
        let said =
            if said.trim().is_empty() { "it failed without a message".to_owned() } else { said };
        return Err(ToolFault::Failed(said));
    }
    if let Some(structured) = &result.structured_content {
        return Ok(value_of(structured));
    }
    Ok(match parts.len() {
        0 => Value::Null,
        1 => parts.pop().unwrap_or_default(),
        _ => Value::Array(parts),
    })
}

/// A text that holds a JSON object or list is that, because older servers send their results so.
fn part(block: &ContentBlock) -> Value {
    match block {
        ContentBlock::Text(text) => of_text(&text.text),
        ContentBlock::Image(image) => {
            json!({"type": "image", "mime_type": image.mime_type, "data": image.data})
        }
        ContentBlock::Audio(audio) => {
            json!({"type": "audio", "mime_type": audio.mime_type, "data": audio.data})
        }
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                json!({"type": "resource", "uri": uri, "text": text})
            }
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                json!({"type": "resource", "uri": uri, "data": blob})
            }
            other => value_of(other),
        },
        ContentBlock::ResourceLink(link) => value_of(link),
        other => value_of(other),
    }
}

fn of_text(text: &str) -> Value {
    let begins = text.trim_start().starts_with(['{', '[']);
    if begins
        && text.len() <= MAX_JSON_TEXT_BYTES
        && let Ok(value) = json::from_str::<Value>(text)
    {
        return value;
    }
    Value::String(text.to_owned())
}
