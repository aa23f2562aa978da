// run cpu: pack
// The transpose of the weight becomes a way to pack it.
func.func @main(%x: f32[n, 4]) -> f32[n, 40] attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> f32[40, 4]
  %t = transpose(%w) {permutation = array<i64: 1, 0>} : (f32[40, 4]) -> f32[4, 40]
  %y = matmul(%x, %t) {precision = "full"} : (f32[n, 4], f32[4, 40]) -> f32[n, 40]
  return %y : f32[n, 40]
}

// gives
module {
  func.func @main(%arg0: f32[n, 4]) -> f32[n, 40] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> f32[40, 4]
    %1 = pack_b(%0) {group = 1 : i64, transposed = true} : (f32[40, 4]) -> f32[2, 4, 32]
    %2 = matmul_packed(%arg0, %1) {columns = "40"} : (f32[n, 4], f32[2, 4, 32]) -> f32[n, 40]
    return %2 : f32[n, 40]
  }
}
