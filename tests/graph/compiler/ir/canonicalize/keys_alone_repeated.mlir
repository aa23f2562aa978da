// run cpu: canonicalize
// Keys that are repeated beside values that are not stay, and nothing is left that nobody reads.
func.func @main(%q: f32[b, 4, s, 16], %k: f32[b, 2, s, 16], %v: f32[b, 4, s, 16]) -> (f32[b, 4, s, 16]) attributes {heddle.symbols = {b = [1, 9], s = [1, 99]}} {
  %n = reshape(%k) {shape = ["b", "2", "1", "s", "16"]} : (f32[b, 2, s, 16]) -> f32[b, 2, 1, s, 16]
  %w = broadcast_to(%n) {shape = ["b", "2", "2", "s", "16"]} : (f32[b, 2, 1, s, 16]) -> f32[b, 2, 2, s, 16]
  %r = reshape(%w) {shape = ["b", "4", "s", "16"]} : (f32[b, 2, 2, s, 16]) -> f32[b, 4, s, 16]
  %a = attention(%q, %r, %v) {causal = false, layout = "bhsd", scale = 2.500000e-01 : f64, softcap = 0.000000e+00 : f64, window = 0 : i64} : (f32[b, 4, s, 16], f32[b, 4, s, 16], f32[b, 4, s, 16]) -> f32[b, 4, s, 16]
  return %a : f32[b, 4, s, 16]
}

// gives
module {
  func.func @main(%arg0: f32[b, 4, s, 16], %arg1: f32[b, 2, s, 16], %arg2: f32[b, 4, s, 16]) -> f32[b, 4, s, 16] attributes {heddle.symbols = {b = [1, 9], s = [1, 99]}} {
    %0 = reshape(%arg1) {shape = ["b", "2", "1", "s", "16"]} : (f32[b, 2, s, 16]) -> f32[b, 2, 1, s, 16]
    %1 = broadcast_to(%0) {shape = ["b", "2", "2", "s", "16"]} : (f32[b, 2, 1, s, 16]) -> f32[b, 2, 2, s, 16]
    %2 = reshape(%1) {shape = ["b", "4", "s", "16"]} : (f32[b, 2, 2, s, 16]) -> f32[b, 4, s, 16]
    %3 = attention(%arg0, %2, %arg2) {causal = false, layout = "bhsd", scale = 2.500000e-01 : f64, softcap = 0.000000e+00 : f64, window = 0 : i64} : (f32[b, 4, s, 16], f32[b, 4, s, 16], f32[b, 4, s, 16]) -> f32[b, 4, s, 16]
    return %3 : f32[b, 4, s, 16]
  }
}
