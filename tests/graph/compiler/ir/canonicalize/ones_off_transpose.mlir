// run cpu: canonicalize
// One of three parts, its axis taken off behind a transpose.
func.func @main(%x: f32[b, s, 1, 4, 16]) -> (f32[b, 4, s, 16]) attributes {heddle.symbols = {b = [1, 9], s = [1, 99]}} {
  %t = transpose(%x) {permutation = array<i64: 2, 0, 3, 1, 4>} : (f32[b, s, 1, 4, 16]) -> f32[1, b, 4, s, 16]
  %r = reshape(%t) {shape = ["b", "4", "s", "16"]} : (f32[1, b, 4, s, 16]) -> f32[b, 4, s, 16]
  return %r : f32[b, 4, s, 16]
}

// gives
module {
  func.func @main(%arg0: f32[b, s, 1, 4, 16]) -> f32[b, 4, s, 16] attributes {heddle.symbols = {b = [1, 9], s = [1, 99]}} {
    %0 = reshape(%arg0) {shape = ["b", "s", "4", "16"]} : (f32[b, s, 1, 4, 16]) -> f32[b, s, 4, 16]
    %1 = transpose(%0) {permutation = array<i64: 0, 2, 1, 3>} : (f32[b, s, 4, 16]) -> f32[b, 4, s, 16]
    return %1 : f32[b, 4, s, 16]
  }
}
