// run cpu: canonicalize
// Chains of reshapes, broadcasts and transposes shorten; what is dead or double goes.
func.func @main(%x: f32[n, 4]) -> (f32[2, 2, n], f32[n, 4], f32[3, n, 4]) attributes {heddle.symbols = {n = [1, 9]}} {
  %a = transpose(%x) {permutation = array<i64: 1, 0>} : (f32[n, 4]) -> f32[4, n]
  %b = reshape(%a) {shape = ["4*n"]} : (f32[4, n]) -> f32[4*n]
  %c = reshape(%b) {shape = ["2", "2", "n"]} : (f32[4*n]) -> f32[2, 2, n]
  %d = transpose(%a) {permutation = array<i64: 1, 0>} : (f32[4, n]) -> f32[n, 4]
  %e = broadcast_to(%d) {shape = ["1", "n", "4"]} : (f32[n, 4]) -> f32[1, n, 4]
  %f = broadcast_to(%e) {shape = ["3", "n", "4"]} : (f32[1, n, 4]) -> f32[3, n, 4]
  %dead = exp(%x) : (f32[n, 4]) -> f32[n, 4]
  return %c, %d, %f : f32[2, 2, n], f32[n, 4], f32[3, n, 4]
}

// gives
module {
  func.func @main(%arg0: f32[n, 4]) -> (f32[2, 2, n], f32[n, 4], f32[3, n, 4]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = transpose(%arg0) {permutation = array<i64: 1, 0>} : (f32[n, 4]) -> f32[4, n]
    %1 = reshape(%0) {shape = ["2", "2", "n"]} : (f32[4, n]) -> f32[2, 2, n]
    %2 = broadcast_to(%arg0) {shape = ["3", "n", "4"]} : (f32[n, 4]) -> f32[3, n, 4]
    return %1, %arg0, %2 : f32[2, 2, n], f32[n, 4], f32[3, n, 4]
  }
}
