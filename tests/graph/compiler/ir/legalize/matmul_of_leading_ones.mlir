// run cpu: legalize
// A left side that lacks a dim of 1 is renamed, not copied.
func.func @main(%x: f32[1, 16, n]) -> (f32[1, 8, n]) attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> f32[8, 16]
  %p = matmul(%w, %x) {precision = "full"} : (f32[8, 16], f32[1, 16, n]) -> f32[1, 8, n]
  return %p : f32[1, 8, n]
}

// gives
module {
  func.func @main(%arg0: f32[1, 16, n]) -> f32[1, 8, n] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> f32[8, 16]
    %1 = reshape(%0) {shape = ["1", "8", "16"]} : (f32[8, 16]) -> f32[1, 8, 16]
    %2 = reshape(%arg0) {shape = ["16", "n"]} : (f32[1, 16, n]) -> f32[16, n]
    %3 = matmul(%1, %2) {precision = "full"} : (f32[1, 8, 16], f32[16, n]) -> f32[1, 8, n]
    return %3 : f32[1, 8, n]
  }
}
